"""The arithmetic of this folder: decoders on blocks by hand, launch decisions, and what becomes of counters."""

import pathlib
import unittest

import counts
import formats
import llama
import llama_attention
import llama_many
import marlin
import numpy as np
import oxibonsai
import product
import sources
import table


def block(size: int, **parts: bytes) -> np.ndarray:
    """One block, with bytes at offsets: `block(18, at0=..., at2=...)`."""
    data = bytearray(size)
    for at, what in parts.items():
        data[int(at[2:]) : int(at[2:]) + len(what)] = what
    return np.frombuffer(bytes(data), np.uint8).reshape(1, size)


HALF, TWO = b"\x00\x38", b"\x00\x40"


class Formats(unittest.TestCase):
    def test_bits_and_crumbs(self):
        w = formats.q1_0(block(18, at0=HALF, at2=b"\x05"))[0]
        self.assertEqual((w[:4].tolist(), w.sum()), ([0.5, -0.5, 0.5, -0.5], 0.5 * (2 - 126)))
        self.assertEqual(formats.tq2(block(34, at0=TWO, at2=b"\xe4"))[0, :5].tolist(), [-2, 0, 2, 0, -2])

    def test_nibbles_of_a_block_are_its_halves(self):
        w = formats.q4_0(block(18, at0=HALF, at2=b"\x9f"))[0]
        self.assertEqual((w[0], w[16], w[1]), (3.5, 0.5, -4.0))

    def test_least_weights_and_fifth_bits(self):
        self.assertEqual(formats.q4_1(block(20, at0=HALF, at2=TWO, at4=b"\x9f"))[0, :17:16].tolist(), [9.5, 6.5])
        # Bits 1 and 16 of four bytes.
        w = formats.q5_0(block(22, at0=HALF, at2=b"\x02\x00\x01\x00", at6=b"\x9f"))[0]
        self.assertEqual((w[0], w[1], w[16], w[17]), (-0.5, 0, 4.5, -8))

    def test_bytes_have_signs(self):
        self.assertEqual(formats.q8_0(block(34, at0=TWO, at2=b"\xff\x7f"))[0, :3].tolist(), [-2, 254, 0])

    def test_scales_of_six_bits(self):
        # Group 1: scale 3 | 0 << 4 in byte 5, least 2 in byte 9. Group 5: scale 7 + 16 * 2, least 4 + 16 * 1.
        data = block(144, at0=HALF, at2=TWO, at5=b"\x83", at9=b"\x42", at13=b"\x47", at16=b"\x50", at80=b"\x60")
        w = formats.q4_k(data)[0]
        self.assertEqual((w[0], w[32]), (0, 0.5 * 3 * 5 - 2 * 2))
        self.assertEqual(w[160], 0.5 * (7 + 32) * 6 - 2 * (4 + 16))
        # The same formula in the other order: scale 1 is the high nibble of byte 4, with bits 2 and 3 of byte 12.
        data = block(144, at0=HALF, at2=TWO, at4=b"\x70", at8=b"\x20", at12=b"\x04", at14=b"\x08", at32=b"\x05")
        w = formats.q4_k_in_order(data)[0]
        self.assertEqual((w[32], w[33], w[0]), (0.5 * (7 + 16) * 5 - 2 * (2 + 32), -2 * 34, 0))

    def test_six_bits_in_two_planes(self):
        scale = bytes([3] * 16)
        w = formats.q6_k(block(210, at0=b"\x21", at128=b"\xe4", at192=scale, at208=HALF))[0]
        self.assertEqual([w[0], w[32], w[64], w[96]], [1.5 * c for c in (1 - 32, 16 - 32, 2 + 32 - 32, 48 - 32)])
        w = formats.q6_k_in_order(block(210, at0=b"\x21", at128=b"\xe4", at192=scale, at208=HALF))[0]
        self.assertEqual(w[:4].tolist(), [1.5 * c for c in (1 - 32, 2 + 16 - 32, 32 - 32, 48 - 32)])

    def test_powers_of_two_and_floats_of_four_bits(self):
        w = formats.mxfp4(block(17, at0=b"\x80", at1=b"\xf7"))[0]
        self.assertEqual((w[0], w[16], w[1]), (12, -12, 0))

    def test_random_blocks_are_as_large_as_the_format(self):
        for f in (formats.Q1_0, formats.Q4_K, formats.MXFP4, formats.F16):
            blocks = f.random(np.random.default_rng(1), 2, 512)
            self.assertEqual(f.decode(blocks).size, 2 * 512)
            self.assertTrue(np.isfinite(f.decode(blocks)).all())


class Launches(unittest.TestCase):
    def test_short_rows_take_another_kernel(self):
        # Four warps go over 32 blocks of Q1_0 in a step.
        self.assertEqual([llama.small_k(cols, 128, 4, 1) for cols in (1024, 3072, 4096)], [True, True, False])
        self.assertEqual([llama.small_k(cols, 256, 32, 2) for cols in (1024, 2048)], [True, False])

    def test_threads_of_a_product_in_f16(self):
        self.assertEqual([llama.half_threads(cols) for cols in (512, 1024, 3072, 4096)], [256, 256, 256, 256])
        self.assertEqual([llama.half_threads(cols) for cols in (64, 384)], [32, 192])

    def test_parts_of_positions_fill_waves(self):
        # 32 heads on 132 multiprocessors: 8 parts are all that 1024 positions have; 20 of 32 fill 97 % of 660 places.
        found = [llama_attention.parts(*of) for of in ((5, 8), (3, 8), (5, 32))]
        self.assertEqual(found, [8, 8, 20])
        # 4 fill 96 % of 132, which is enough: 33 would fill all of 8 waves.
        self.assertEqual(llama_attention.parts(1, 64), 4)

    def test_attention_is_a_mean_of_values(self):
        q, k = np.zeros((32, 128)), np.ones((2, 8, 128))
        v = np.stack([np.full((8, 128), 1.0), np.full((8, 128), 3.0)])
        self.assertTrue(np.allclose(llama_attention.reference(q, k, v), 2))
        # Head 4 is the first of key head 1: a score of 128 / sqrt(128) more for the second position.
        q[4, :], k[0, 1, :], v[:, 0] = 1, 0, 0
        self.assertTrue(np.allclose(llama_attention.reference(q, k, v)[4], 3 - 2 / (1 + np.exp(128**0.5))))

    def test_tiles_are_the_fewest_columns_with_the_fewest_tiles(self):
        self.assertEqual([llama_many.tile(n) for n in (16, 17, 64, 128, 130, 512)], [16, 24, 64, 128, 72, 128])
        self.assertIn("mul_mat_q<GGML_TYPE_Q4_K, 64, false>", llama_many.source())

    def test_a_divisor_is_a_product_and_a_shift(self):
        for n in (1, 3, 7, 128):
            factor, shift, divisor = llama.divided_by(n)
            self.assertEqual(divisor, n)
            for x in (0, 1, n - 1, n, 1000, 2**31):
                self.assertEqual(((x * factor >> 32) + x) >> shift, x // n)

    def test_a_text_without_its_other_entries(self):
        a, b = (f".entry {name}(\n\t.param .u64 p\n)\n{{\n{{ .reg .b32 r;\n}}\n\tret;\n}}\n" for name in "ab")
        head, table = ".version 9.4\n.target sm_90\n", ".global .align 4 .b8 t[2] = {1, 2};\n"
        self.assertEqual(llama.only(head + a + table + ".visible " + b, "b"), head + table + ".visible " + b)

    def test_cuda_in_a_string_of_rust(self):
        rust = 'pub const A: &str = r#"\na "b" c\n"#;\npub const B: &str = r#"d"#;\n'
        self.assertEqual((oxibonsai.cuda(rust, "A"), oxibonsai.cuda(rust, "B")), ('\na "b" c\n', "d"))
        with self.assertRaises(LookupError):
            oxibonsai.cuda(rust, "C")


class Marlin(unittest.TestCase):
    def test_where_a_code_lies(self):
        # Row 64 + 27 is of the second tile, of its second 16, of the lower half there, g = 3. Weight 16 + 12 is of the second
        # step, of its upper half, t = 2, even. Lane 14 has it; of 128 words of a tile, four a lane, or of 256, eight a lane.
        codes = np.zeros((128, 32), np.uint8)
        codes[64 + 27, 16 + 12] = 5
        for bits, word, code in ((4, 3 * 128 + 14 * 4 + 1, 2 + 1), (8, 3 * 256 + 14 * 8 + 2 + 1, 1)):
            words = marlin.packed(codes, bits)
            self.assertEqual((words.size, np.flatnonzero(words).tolist()), (128 * 32 * bits // 32, [word]))
            self.assertEqual(words[word], 5 << bits * code)

    def test_scales_of_rows_that_leave_the_same_rest(self):
        scales = marlin.in_eights(np.arange(128 * 2).reshape(128, 2))
        self.assertEqual(scales.shape, (2, 128))
        # Group 1 of rows 0, 8, 16 and so on, then of 1, 9 and so on; row 64 begins anew.
        self.assertEqual(((scales[1, :9] - 1) // 2).tolist(), [0, 8, 16, 24, 32, 40, 48, 56, 1])
        self.assertEqual(scales[0, 64], 2 * 64)
        zeros = np.zeros((64, 1), np.uint8)
        zeros[16 + 1], zeros[8 + 1] = 7, 3
        self.assertEqual(marlin.packed_zeros(zeros).tolist(), [0, 7 << 4 | 3 << 16, 0, 0, 0, 0, 0, 0])

    def test_weights_of_groups(self):
        of = marlin.of_group(32)
        data = block(19, at0=HALF, at2=b"\xf3", at3=b"\x9f")
        self.assertEqual(marlin.with_zero(data)[0, :17:16].tolist(), [6, 3])
        self.assertEqual((of[1].codes(data)[0, :17:16].tolist(), of[1].zeros(data).tolist()), ([15, 9], [3]))
        data = block(34, at2=b"\xff\x80")
        self.assertEqual(of[2].codes(data)[0, :2].tolist(), [127, 0])
        for weights in marlin.WEIGHTS:
            blocks = weights.format.random(np.random.default_rng(1), 2, 256)
            codes = weights.codes(blocks).astype(np.float64)
            less = weights.zeros(blocks)[:, None] if weights.zeros else weights.bias
            self.assertTrue(np.array_equal(formats.half(blocks, 0) * (codes - less), weights.format.decode(blocks)))

    def test_a_row_has_one_scale(self):
        for weights in marlin.of_group(128):
            one = marlin.OneScale(**vars(weights.format))
            blocks = one.random(np.random.default_rng(1), 3, 512).reshape(3, 4, one.size)
            head = 3 if weights.zeros else 2
            self.assertTrue((blocks[:, :, :head] == blocks[:, :1, :head]).all())
            self.assertFalse((blocks[:, 0, :2] == blocks[0, 0, :2]).all() or (blocks[:, :, head:] == blocks[:, :1, head:]).all())

    def test_tiles_by_columns(self):
        found = [marlin.tile(n).sizes for n in (2, 8, 16, 17, 64, 512)]
        self.assertEqual(found, 3 * [[256, 1, 8, 8]] + [[256, 2, 16, 4], [256, 4, 16, 4], [256, 4, 16, 4]])
        self.assertEqual([marlin.tile(n).columns for n in (2, 8, 9, 17, 512)], [8, 8, 16, 32, 64])

    def test_names_of_kernels(self):
        weights, of = marlin.of_group(128)[0], marlin.tile(8)
        self.assertIn("Marlin<half, vllm::kU4B8.id(), vllm::kFloat16.id(), 256, 1, 8, 8, true, 4, 8, false>", marlin.source())
        name = "_ZN6marlin6MarlinI6__halfLl1125899907892224ELl1125899906910725ELi256ELi1ELi8ELi8ELb1ELi4ELi8ELb0EEEvPK4int4"
        self.assertRegex(name, marlin.entry(weights, of))
        self.assertNotRegex(name, marlin.entry(weights, marlin.tile(16)))

    def test_a_source_is_pinned_by_its_checksum(self):
        for package in ("llama-cpp-python", "gptqmodel"):
            self.assertRegex(sources.pinned(package), rf"^{package}==[0-9.]+ --hash=sha256:[0-9a-f]{{64}}\n$")
        with self.assertRaises(ValueError):
            sources.pinned("gptq")


class Counts(unittest.TestCase):
    SHOWN = {
        "launches": 2,
        "metrics": {"smsp__inst_executed.sum": 200, "smsp__sass_data_bytes_mem_global_op_ld.sum": 600},
        "issue": {"kernel": 150.0, "loops": {"slots": 80.0, "global_load_bytes": 480}},
    }

    def test_slots_are_of_one_launch_and_of_lanes(self):
        # A fifth of the bytes is loaded outside of the loop, by a step that it does not have.
        self.assertEqual(counts.slots(self.SHOWN), (16 * 100, 16 * 150, 16 * 200))
        for loops in (None, {"slots": 10.0, "global_load_bytes": 290}):
            straight = {**self.SHOWN, "issue": {"kernel": 150.0, "loops": loops}}
            self.assertEqual(counts.slots(straight), (16 * 150, 16 * 150, 16 * 200))

    def test_copies_to_shared_memory_say_nothing_of_steps(self):
        metrics = {"smsp__inst_executed.sum": 200, "smsp__sass_data_bytes_mem_global_op_ld.sum": 0}
        self.assertEqual(counts.slots({**self.SHOWN, "metrics": metrics}), (16 * 80, 16 * 150, 16 * 200))

    def test_what_is_done_once_is_shared_by_the_rows(self):
        def of(cols, slots=2.0):
            return counts.Count("llama.cpp", "Q4_0", "f32", cols, "k", 1e-3, 2, 1.5, slots, 3.0, 128.0, 1.125)

        self.assertEqual(table.whole(of(4096), 1024), 2.125)
        text = table.products([of(3072), of(4096, slots=1.0)]).splitlines()[-1]
        self.assertEqual(text, "| Q4_0 | llama.cpp | f32 | 1e-3 | 2 | 1.50, 1.50 | 3.00, 3.00 | 2.12, 1.03, 1.01 |")

    def test_several_columns_are_a_row_a_peer(self):
        def of(peer, columns, loop, activations="int8", format="Q8_0"):
            return counts.Many(peer, format, activations, columns, "k", None, loop, 1.0, 0.0)

        found = [of("llama.cpp", n, 0.5, "f32") for n in (2, 16)] + [of("warpsmith", n, n / 4) for n in (2, 12, 16)]
        lines = table.many([*found, of("warpsmith", 2, 1.0, format="Q5_1")]).splitlines()
        self.assertEqual(lines[0], "| format | product | activations | 2 | 16 |")
        mine, theirs = "| Q8_0 | warpsmith | int8 | 0.500, 1.000 | 4.000, 1.000 |", "| Q8_0 | llama.cpp | f32 | 0.500, 1.000 | 0.500, 1.000 |"
        self.assertEqual(lines[2:], [mine, theirs])

    def test_a_product_is_its_tile_with_the_fewest_instructions(self):
        def of(name, format=formats.F16):
            kernel = product.Kernel(pathlib.Path("f.ptx"), name)
            return product.Product("Triton", format, "f16", lambda cols: [kernel], lambda gpu, m, x: x)

        found = [of("a"), of("b"), of("c", formats.Q4_0)]
        chosen = counts.fewest(found, 4096, {"a": 9, "b": 8, "c": 10})
        self.assertEqual([p.kernels(4096)[0].name for p in chosen], ["b", "c"])

    def test_attention_by_its_bytes(self):
        # 1000 positions of 8 heads of 128 halves, keys and values.
        k = {"kernel": "attn_step_f16", "shape": "32/8 x 128, 1000", "launches": 1, "cache_bytes": 4096000}
        k |= {"hot_loop": {"iterations": 1000.0}, "loops": {"slots": {"alu": 64.0, "tensor": 64.0}}}
        k |= {"kernel_slots_per_cache_byte": 7.5}
        self.assertEqual(llama_attention.bytes_of(1000), k["cache_bytes"])
        mine = counts.ours_attention(k)
        self.assertEqual((mine.positions, mine.loop, mine.slots), (1000, 1.0, 7.5))
        theirs = counts.Attention("llama.cpp", "k", 1024, 1e-8, 2, 5.5, 11.0)
        lines = table.attention([theirs, mine]).splitlines()[2:]
        self.assertEqual(lines, ["| 1000 | `attn_step_f16` | 1 | 1.00 | 7.50 |", "| 1024 | llama.cpp | 2 | 5.50 | 11.00 |"])

    def test_tables_take_the_place_of_those_before(self):
        page = "a\n<!-- counted: t -->\nold\n<!-- end of t -->\nb\n"
        new = table.written(page, {"t": "| new |"})
        self.assertEqual(new, "a\n<!-- counted: t -->\n| new |\n<!-- end of t -->\nb\n")
        self.assertEqual(table.written(new, {"t": "| new |"}), new)
        with self.assertRaises(LookupError):
            table.written(page, {"other": ""})

    def test_an_error_is_a_share_of_the_row(self):
        w = np.array([[1.0, -2.0], [0.5, 0.5]])
        self.assertEqual(counts.error(np.array([-1.0, 1.1]), w, np.array([1.0, 1.0])), 1.1 - 1)


if __name__ == "__main__":
    unittest.main()
