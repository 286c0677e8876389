use super::slots::{Division, Hot, Slots, executions, weigh};
use super::*;
use crate::cli::Place;
use warpsmith_check::{Class, LineProfile, Metrics};
use warpsmith_host::gpu_kernels::kv::KvType;
use warpsmith_host::model::ModelShape;

/// A kernel as nvdisasm prints it, written by hand. Line 20 of PTX loads codes, line 21 scales, line 22 multiplies and
/// adds; ptxas has unrolled the loop by two and put the rest behind it.
const UNROLLED: &str = "
.text.k:
	//## File \".nv_debug_ptx_txt\", line 10
        /*0000*/                   LDG.E.128 R40, desc[UR6][R2.64] ;
        /*0010*/                   STS.128 [R3], R40 ;
.L_x_1:
	//## File \".nv_debug_ptx_txt\", line 20
        /*0020*/                   LDG.E.128.CONSTANT R4, desc[UR6][R10.64] ;
        /*0030*/                   LDG.E.128.CONSTANT R8, desc[UR6][R10.64+0x200] ;
	//## File \".nv_debug_ptx_txt\", line 21
        /*0040*/                   LDG.E.U16.CONSTANT R12, desc[UR6][R14.64] ;
        /*0050*/                   LDG.E.U16.CONSTANT R13, desc[UR6][R14.64+0x40] ;
	//## File \".nv_debug_ptx_txt\", line 23
        /*0060*/                   LOP3.LUT R20, R4, 0xf, RZ, 0xc0, !PT ;
	//## File \".nv_debug_ptx_txt\", line 22
        /*0070*/                   FFMA R1, R20, R16, R1 ;
        /*0080*/                   FFMA R1, R21, R17, R1 ;
	//## File \".nv_debug_ptx_txt\", line 24
        /*0090*/               @P0 BRA `(.L_x_1) ;
        /*00a0*/              @!P1 BRA `(.L_x_2) ;
	//## File \".nv_debug_ptx_txt\", line 20
        /*00b0*/                   LDG.E.128.CONSTANT R4, desc[UR6][R10.64] ;
	//## File \".nv_debug_ptx_txt\", line 22
        /*00c0*/                   FFMA R1, R20, R16, R1 ;
.L_x_2:
	//## File \".nv_debug_ptx_txt\", line 30
        /*00d0*/                   STG.E desc[UR6][R2.64], R1 ;
        /*00e0*/                   EXIT ;
";

fn line(ptx_line: u32, warps: u64, bytes: u64) -> LineProfile {
    let mut metrics = Metrics::default();
    (metrics.warp_instructions, metrics.global_load_bytes) = (warps, bytes);
    LineProfile { ptx_line, ptx_text: String::new(), source: Vec::new(), class: Class::Other, metrics }
}

/// 100 warps that each went 8 times around the loop of PTX.
fn weighed(code_bytes: u64) -> Slots {
    let code = sass::read(UNROLLED, "k").unwrap();
    let lines =
        [line(10, 100, 51_200), line(20, 800, 409_600), line(21, 800, 51_200), line(22, 800, 0), line(30, 100, 0)];
    weigh(&code, &lines, code_bytes)
}

#[test]
fn an_unrolled_loop_runs_as_often_as_its_copies_say() {
    let slots = weighed(409_600);
    // Two copies in the loop: 400 iterations; the copy behind it counts for nothing, and the branch around it has no
    // line that was counted.
    assert_eq!(slots.executions, [100.0, 400.0, 0.0, 0.0, 100.0]);
    let Hot { iterations, work, .. } = slots.hot.unwrap();
    // Eight instructions, and of them four loads.
    assert_eq!((iterations, work.slots, work.holds_codes), (400.0, 3200.0, true));
    let of = |pipe| work.pipes.get(&pipe).copied();
    assert_eq!((of(pipes::Pipe::Global), of(pipes::Pipe::F32)), (Some(1600.0), Some(800.0)));
    // By line 51200 of 460800 bytes.
    assert_eq!((work.bytes, work.narrow_bytes), (460_800, 51_200));
    // Loads go at a quarter of the issue rate, so four of them take longer than the eight take to issue.
    let binding = work.binding();
    assert_eq!((binding.pipe, binding.issue, binding.slots), (pipes::Pipe::Global, false, 6400.0));
}

/// A line in both ways around a branch, as ptxas writes what stands behind it twice.
const TWICE: &str = "
.text.k:
        /*0000*/               @P0 BRA `(.L_x_1) ;
	//## File \".nv_debug_ptx_txt\", line 20
        /*0010*/                   STG.E desc[UR6][R2.64], R1 ;
        /*0020*/                   EXIT ;
.L_x_1:
	//## File \".nv_debug_ptx_txt\", line 20
        /*0030*/                   STG.E desc[UR6][R2.64], R1 ;
        /*0040*/                   EXIT ;
";

#[test]
fn many_warps_share_copies_of_a_line_and_one_warp_takes_whole_ones() {
    let code = sass::read(TWICE, "k").unwrap();
    let of = |n: u64, division| executions(&code, &[(20, n)].into(), division)[1..].to_vec();
    assert_eq!((of(1, Division::Even), of(1, Division::Whole)), (vec![0.5, 0.5], vec![1.0, 0.0]));
    assert_eq!((of(5, Division::Even), of(5, Division::Whole)), (vec![2.5, 2.5], vec![3.0, 2.0]));
}

#[test]
fn a_loop_that_does_not_load_all_codes_says_so() {
    let hot = weighed(1 << 20).hot.unwrap();
    assert_eq!((hot.iterations, hot.work.holds_codes), (400.0, false));
}

/// After line 31 most threads have left; what is behind it, lines 40 to 42, no warp of the run came to.
const LEFT: &str = "
.text.k:
	//## File \".nv_debug_ptx_txt\", line 30
        /*0000*/                   LDG.E.128 R4, desc[UR6][R2.64] ;
	//## File \".nv_debug_ptx_txt\", line 31
        /*0010*/               @P0 EXIT ;
	//## File \".nv_debug_ptx_txt\", line 40
        /*0020*/                   IADD3 R8, R4, R5, RZ ;
        /*0030*/               @P1 BRA `(.L_x_1) ;
	//## File \".nv_debug_ptx_txt\", line 41
        /*0040*/                   LDG.E.128 R12, desc[UR6][R8.64] ;
	//## File \".nv_debug_ptx_txt\", line 42
        /*0050*/                   FFMA R1, R12, R13, R1 ;
.L_x_1:
        /*0060*/                   EXIT ;
";

#[test]
fn what_no_warp_came_to_costs_nothing() {
    let code = sass::read(LEFT, "k").unwrap();
    let slots = weigh(&code, &[line(30, 100, 51_200), line(31, 100, 0)], 51_200);
    assert_eq!((slots.executions, slots.kernel), (vec![100.0, 0.0, 0.0, 0.0], 200.0));
}

/// A loop over keys, written by hand: line 20 of PTX copies them, 21 loads matrices, 22 multiplies, 23 adds.
const PRODUCTS: &str = "
.text.k:
.L_x_1:
	//## File \".nv_debug_ptx_txt\", line 20
        /*0000*/                   LDGSTS.E.BYPASS.128 [R7], desc[UR6][R2.64], !P1 ;
	//## File \".nv_debug_ptx_txt\", line 21
        /*0010*/                   LDSM.16.M88.4 R16, [R4] ;
	//## File \".nv_debug_ptx_txt\", line 22
        /*0020*/                   HMMA.16816.F32 R8, R20, R16, R8 ;
        /*0030*/                   HMMA.16816.F32 R12, R20, R18, R12 ;
	//## File \".nv_debug_ptx_txt\", line 23
        /*0040*/                   FADD R0, R8, R9 ;
        /*0050*/                   FADD R0, R0, R10 ;
        /*0060*/                   FADD R0, R0, R11 ;
        /*0070*/                   FADD R0, R0, R12 ;
        /*0080*/                   FADD R0, R0, R13 ;
	//## File \".nv_debug_ptx_txt\", line 24
        /*0090*/               @P0 BRA `(.L_x_1) ;
        /*00a0*/                   EXIT ;
";

#[test]
fn tensor_cores_get_what_issuing_and_the_busiest_pipe_leave() {
    let code = sass::read(PRODUCTS, "k").unwrap();
    // 100 iterations of two products each; `passes` of shared memory.
    let hot = |passes: u64| {
        let mut lines = [line(20, 100, 0), line(21, 100, 0), line(22, 200, 0), line(23, 500, 0)];
        lines[0].metrics.global_copy_bytes = 51_200;
        lines[1].metrics.shared_load_wavefronts = passes;
        weigh(&code, &lines, 51_200).hot.unwrap()
    };
    // Two products take 8 of the 10 slots that an iteration issues.
    let work = hot(0).work;
    assert_eq!((hot(0).iterations, work.slots, work.bytes), (100.0, 1000.0, 51_200));
    assert_eq!(attention::tensor_rate(&hot(0)), Some(0.8));
    // Four passes an iteration are 16 slots, and shared memory binds.
    assert_eq!(attention::tensor_rate(&hot(400)), Some(0.5));
    assert_eq!(hot(400).work.binding().pipe, pipes::Pipe::Shared);
    assert_eq!(attention::tensor_rate(&weighed(409_600).hot.unwrap()), None);
}

#[test]
fn every_run_of_attention_has_a_kernel_and_a_case() {
    let manifest = warpsmith_host::kernels().unwrap();
    let all = attention::AttentionRun::chosen(None);
    assert_eq!((all.len(), all[0].family(), all[13].family()), (14, "attention", "prefill"));
    assert!(all.iter().all(|r| manifest.kernels.iter().any(|k| k.name == r.kernel()) && r.case().is_ok()));
    // Keys and values of 8 heads: rows of 128 codes and a scale; for a prompt 128, 256, ... 1024 of one, twice.
    assert_eq!(attention::AttentionRun::Step(KvType::Int8, 1000).needed(), 2 * 8 * 1000 * 132);
    assert_eq!(attention::AttentionRun::Prompt(KvType::F16, 128).needed(), 2 * 2 * 4608 * 256);
    assert_eq!(attention::AttentionRun::Prompt(KvType::Int8, 128).needed(), 2 * 2 * 4608 * 132);
    // Of two columns of a warp that end at 2, 4, ... 1024: whole groups of 16 once, and the last for each.
    assert_eq!(
        attention::AttentionRun::Exact(KvType::F16, 64).needed(),
        2 * (512 * 32 + 8 * 16 * (0..64).sum::<u64>()) * 128
    );
    assert_eq!(attention::AttentionRun::chosen(Some("attn_step_q8")).len(), 2);
}

#[test]
fn a_step_that_issues_more_than_memory_leaves_time_for_or_than_a_block_may_do_once_misses_its_budget() {
    for kv in KvType::ALL {
        let miss = attention::AttentionRun::Step(kv, 4096).issued(7.51).unwrap();
        assert!(miss.text.contains("7.51 issue slots") && miss.text.contains("budget 7.5"), "{}", miss.text);
        assert_eq!(attention::AttentionRun::Step(kv, 4096).issued(7.5), None);
    }
    // With few positions by what a block does once, which is more for a byte the smaller the bytes are.
    let miss = attention::AttentionRun::Step(KvType::F16, 1000).issued(4.91).unwrap();
    assert!(miss.text.contains("4.91 issue slots") && miss.text.contains("budget 4.9"), "{}", miss.text);
    assert_eq!(attention::AttentionRun::Step(KvType::F16, 1000).issued(4.9), None);
    assert!(attention::AttentionRun::Step(KvType::F32, 1000).issued(5.71).is_some());
    assert!(attention::AttentionRun::Step(KvType::Int8, 1000).issued(11.31).is_some());
    assert_eq!(attention::AttentionRun::Prompt(KvType::F16, 128).issued(20.0), None);
}

/// A product whose work is split over two loops, each of half of the weights: lines 20 and 21 load, 22 and 23 multiply.
const SPLIT: &str = "
.text.k:
	//## File \".nv_debug_ptx_txt\", line 10
        /*0000*/                   STS.128 [R3], R40 ;
.L_x_1:
	//## File \".nv_debug_ptx_txt\", line 20
        /*0010*/                   LDG.E.128.CONSTANT R4, desc[UR6][R10.64] ;
	//## File \".nv_debug_ptx_txt\", line 22
        /*0020*/                   FFMA R1, R20, R16, R1 ;
        /*0030*/               @P0 BRA `(.L_x_1) ;
.L_x_2:
	//## File \".nv_debug_ptx_txt\", line 21
        /*0040*/                   LDG.E.128.CONSTANT R4, desc[UR6][R10.64] ;
	//## File \".nv_debug_ptx_txt\", line 23
        /*0050*/                   FFMA R1, R20, R16, R1 ;
        /*0060*/                   FFMA R1, R21, R17, R1 ;
        /*0070*/                   FFMA R1, R22, R18, R1 ;
        /*0080*/               @P0 BRA `(.L_x_2) ;
	//## File \".nv_debug_ptx_txt\", line 30
        /*0090*/                   EXIT ;
";

/// 100 warps: four iterations of the first loop, eight of the second.
fn split(first: u64, second: u64) -> Slots {
    let code = sass::read(SPLIT, "k").unwrap();
    let mut lines = [line(10, 100, 0), line(20, 400, 204_800), line(21, 800, 409_600)].to_vec();
    lines.extend([line(22, 400, 0), line(23, 2400, 0), line(30, 100, 0)]);
    for (at, sectors) in [(1, first), (2, second)] {
        lines[at].metrics.global_first_sectors = sectors;
        lines[at].metrics.global_load_requests = lines[at].metrics.warp_instructions;
    }
    weigh(&code, &lines, 614_400)
}

#[test]
fn work_that_is_split_over_loops_is_the_sum_of_them() {
    let slots = split(6400, 12_800);
    assert_eq!(slots.executions, [100.0, 400.0, 800.0, 100.0]);
    // 3 instructions 400 times and 5 instructions 800 times; the larger loop alone would be 4000 over all weights.
    let loops = slots.loops.unwrap();
    assert_eq!((loops.slots, loops.bytes, loops.holds_codes), (5200.0, 614_400, true));
    assert_eq!((slots.hot.unwrap().work.slots, slots.kernel), (4000.0, 5400.0));
}

#[test]
fn on_the_way_are_bytes_of_memory_that_a_warp_waits_for_in_an_iteration() {
    // 512 bytes a warp and iteration in both loops, all of them from memory.
    assert_eq!(split(6400, 12_800).round, 512.0);
    // The second loop reads what others have read: a cache gives it, and only the first loop's are from memory.
    assert_eq!(split(6400, 100).round, 512.0);
    assert_eq!(split(0, 0).round, 0.0);
    // A block of 128 threads is four warps.
    assert_eq!(split(6400, 12_800).block_in_flight(128), 2048.0);
}

#[test]
fn narrow_loads_cost_the_first_cache_their_requests_and_sectors() {
    // 800 loads of 2 bytes a lane, each of so many sectors: a request a clock takes four slots, and so do four sectors.
    let pressure = |sectors: u64| {
        let code = sass::read(UNROLLED, "k").unwrap();
        let mut lines = [line(20, 800, 409_600), line(21, 800, 51_200), line(22, 800, 0)];
        (lines[1].metrics.global_load_requests, lines[1].metrics.global_load_sectors) = (800, 800 * sectors);
        weigh(&code, &lines, 409_600).loops.unwrap().pressure[&pipes::Pipe::Global]
    };
    // 800 wide loads whose sectors are not counted here, and 800 narrow ones.
    assert_eq!(pressure(2), 4.0 * 800.0 + 4.0 * 800.0);
    assert_eq!(pressure(32), 4.0 * 800.0 + 8.0 * 4.0 * 800.0);
}

#[test]
fn an_unknown_kernel_is_a_usage_error_that_names_the_families() {
    let args = BudgetArgs {
        filter: Some("q9_9".into()),
        rows: Some(32),
        cols: Some(256),
        write: false,
        sass: false,
        place: Place::default(),
        json: false,
    };
    let text = run(&args).unwrap_err().to_string();
    assert!(text.contains("q9_9") && text.contains("Q1_0") && text.contains("F16"), "{text}");
}

#[test]
fn every_family_has_a_kernel_and_a_case_that_writes_codes_if_it_reads_them() {
    let manifest = warpsmith_host::kernels().unwrap();
    for family in families::FAMILIES.iter() {
        let of_family: Vec<FamilyProduct> =
            FamilyProduct::chosen(None).into_iter().filter(|s| std::ptr::eq(s.family, family)).collect();
        assert!(!of_family.is_empty(), "{}", family.name);
        for subject in of_family {
            let name = subject.kernel();
            assert!(manifest.kernels.iter().any(|k| k.name == name), "{name}");
            for cols in WIDTHS {
                let case = subject.case((ROWS, cols)).ok().unwrap().to_string();
                assert!(case.contains(&format!("rows=128,cols={cols}")), "{name}: {case}");
                let quantizes = case.contains(",quant_format=") && !case.contains(",quant_format=0");
                // `gemv_f16` and its variants multiply weights of f16 with f32.
                let of_f16 = name.ends_with("_f16") && name.matches('_').count() > 1 && name.starts_with("gemv");
                assert_eq!(quantizes, name.contains("_i") || of_f16, "{name}: {case}");
            }
        }
    }
}

#[test]
fn what_is_listed_as_missed_is_of_budgets_that_there_are() {
    let paths = families::FAMILIES.iter().flat_map(|f| f.limits.iter().map(move |l| (f, l.0)));
    let mut names: Vec<String> = paths
        .flat_map(|(f, p)| {
            let title = p.map_or_else(|| f.name.to_owned(), |p| format!("{} {p}", f.name));
            WIDTHS.map(move |w| format!("{title}, {w} columns: "))
        })
        .collect();
    let products = || ModelShape::QWEN3.iter().flat_map(|m| m.products().map(|p| (m.name, p.part)));
    let kernels: Vec<String> = FamilyProduct::chosen(None).iter().map(FamilyProduct::kernel).collect();
    names.extend(kernels.iter().flat_map(|k| products().map(move |(m, p)| format!("{}: ", flight::name(k, m, p)))));
    names.extend(attention::AttentionRun::chosen(None).iter().map(|r| format!("{} {}: ", r.kernel(), r.shape())));
    names.extend(gemm::GemmRun::chosen(None).into_iter().map(|r| format!("{}: ", r.name())));
    for key in known::built_in().ok().unwrap().keys() {
        assert!(names.iter().any(|n| key.starts_with(n.as_str())), "{key}");
    }
}
