"""The kinds of damage that verdicts.py does to files of the corpus: one line is replaced, removed or repeated.

A kind is a name, a pattern that finds a place in a line, and what replaces it (as in re.sub; a function of the match
works too). `SITES` places are damaged for each, in different files where the pattern occurs in several.
"""

import re

SITES = 3
CUT = "<cut>"


def swap(old, new):
    return (re.escape(old), lambda m: new)


def drop_last_operand(m):
    return m.group(1) + ";"


def double_last_operand(m):
    return m.group(1) + m.group(2) + m.group(2) + ";"


R, RD, F, FD, P, RS = r"%r\d+", r"%rd\d+", r"%f\d+", r"%fd\d+", r"%p\d+", r"%rs\d+"

KINDS = [
    # Words.
    ("unknown instruction", r"\badd\.s32\b", "adds.s32"),
    ("unknown instruction", r"\bmov\.", "move."),
    ("unknown modifier", r"\bld\.global\.", "ld.global.foo."),
    ("unknown modifier", r"\bbar\.sync\b", "bar.synch"),
    ("unknown modifier", r"\bmul\.lo\.", "mul.low."),
    ("unknown type", r"\badd\.s32\b", "add.s33"),
    ("unknown type", r"\bld\.param\.u64\b", "ld.param.u65"),
    ("unknown comparison", r"\bsetp\.(lt|ge|eq|ne)\.", "setp.xx."),
    ("unknown special register", r"%tid\.x", "%tid.w"),
    ("unknown special register", r"%ctaid\.x", "%ctaidx"),
    ("unknown directive", r"^\t\.reg ", "\t.regs "),
    ("unknown directive", r"^\.address_size", ".adress_size"),
    ("unknown directive", r"^\.maxntid", ".maxntids"),
    ("unknown directive", r"^\.visible ", ".visibly "),
    ("missing dot", r"^\t\.reg ", "\treg "),
    ("missing dot", r"^\.target", "target"),
    ("upper case", r"\badd\.", "ADD."),
    ("upper case", r"^\t\.reg", "\t.REG"),
    # Punctuation.
    ("missing semicolon", r"^(\t(?:add|mul|ld|st|mov)\..*);", r"\1"),
    ("missing semicolon", r"^(\tret);", r"\1"),
    ("missing semicolon", r"^(\t\.reg .*);", r"\1"),
    ("missing comma", r"^(\tadd\.s32 \s*%r\d+),", r"\1"),
    ("missing comma", r"^(\tst\.[a-z0-9.]+\s+\[[^]]*\]),", r"\1"),
    ("doubled comma", r"^(\tadd\.s32 \s*%r\d+),", r"\1,,"),
    ("doubled semicolon", r";$", ";;"),
    ("missing brace", r"^\}$", ""),
    ("missing brace", r"^\{$", ""),
    ("missing brace", r"^\t\}$", ""),
    ("surplus brace", r"^(\tret;)", r"\1 }"),
    ("missing bracket", r"^(\tld\.global\.[a-z0-9.]+\s+%\w+,\s*)\[([^]]*)\]", r"\1\2"),
    ("missing bracket", r"^(\tst\.[a-z0-9.]+\s+\[[^]]*)\]", r"\1"),
    ("missing parenthesis", r"^(\.visible \.entry \w+)\($", r"\1"),
    ("missing parenthesis", r"^\)$", ""),
    ("stray character", r"^(\tadd\.s32 )", r"\1$ "),
    ("stray character", r"^(\tmov\.u32 )", "\\1\u00e9 "),
    ("unterminated comment", r"^\tret;", "\tret; /* never closed"),
    ("unterminated string", r'^(\s*\.file\s+\d+ ")([^"]*)"', r"\1\2"),
    ("text cut off", r"^\tsetp\..*", CUT),
    # The header.
    ("version too old for target", r"^\.version \S+", ".version 3.2"),
    ("version too old for target", r"^\.version \S+", ".version 6.0"),
    ("version too old for instruction", r"^\.version \S+", ".version 7.0"),
    ("version too old for instruction", r"^\.version \S+", ".version 7.8"),
    ("version unknown", r"^\.version \S+", ".version 99.0"),
    ("version malformed", r"^\.version \S+", ".version 9"),
    ("version missing", r"^\.version \S+$", ""),
    ("target too old", r"^\.target sm_\d+", ".target sm_70"),
    ("target too old", r"^\.target sm_\d+", ".target sm_60"),
    ("target too old", r"^\.target sm_\d+", ".target sm_50"),
    ("target newer than the device", r"^\.target sm_\d+", ".target sm_100"),
    ("target unknown", r"^\.target sm_\d+", ".target sm_81"),
    ("target missing", r"^\.target sm_\d+$", ""),
    ("address size", r"^\.address_size 64", ".address_size 32"),
    ("address size", r"^\.address_size 64", ".address_size 48"),
    ("address size missing", r"^\.address_size 64", ""),
    # Names.
    ("undeclared register", rf"^(\t(?:add|mul|and|or)\.\w+(?:\.\w+)*\s+%\w+, ){R}", r"\1%undeclared"),
    ("undeclared register", rf"^(\tst\.[a-z0-9.]+\s+\[){RD}", r"\1%rd99999"),
    ("register out of range", r"^(\t\.reg \.(?:b32|b64)\s*%\w+)<\d+>", r"\1<2>"),
    ("missing .reg", r"^\t\.reg \.pred.*", ""),
    ("missing .reg", r"^\t\.reg \.b64.*", ""),
    ("register twice", r"^(\t\.reg \.\w+ \s*%\w+<\d+>;)", r"\1\1"),
    ("register twice", r"^(\t\.reg \.b32 \s*%r<\d+>;)", r"\1 .reg .b32 %r1;"),
    ("register range", r"^(\t\.reg \.b32\s*%\w+)<\d+>", r"\1<-1>"),
    ("unknown label", r"^(\t@?!?(?:%p\d+)?\s*bra(?:\.uni)?\s+)(\$\w+)", r"\1\2_nowhere"),
    ("label twice", r"^(\$L_?_?\w+:)", r"\1\n\1"),
    ("branch to a register", r"^(\t@?!?(?:%p\d+)?\s*bra(?:\.uni)?\s+)(\$\w+)", r"\1%r1"),
    ("branch to nothing", r"^(\t@?!?(?:%p\d+)?\s*bra(?:\.uni)?)\s+\$\w+", r"\1"),
    ("unknown parameter", r"\[(\w+)_param_(\d+)\]", r"[\1_param_77]"),
    ("unknown variable", r"^(\tmov\.[ub]\d+\s+%\w+, )(_Z\w+|\w*tile\w*|__local\w+);", r"\1missing_variable;"),
    ("function twice", r"^(\.visible \.entry )\w+\($", r".visible .func twice() { ret; } .visible .func twice() { ret; }\n\g<0>"),
    ("entry and function of one name", r"^(\.visible \.entry )(\w+)\($", r".func \2() { ret; }\n\g<0>"),
    ("variable twice", r"^(\.(?:visible )?\.?(?:global|shared|const) .*;)$", r"\1\n\1"),
    ("parameter twice", r"^(\t\.param \.u64 (?:\.ptr \S+ \S+ \d+ )?\w+_param_)1\b", r"\g<1>0"),
    ("label as register name", r"^(\tret;)", "\t.reg .b32 same; same:\n\\1"),
    # Types.
    ("register class", rf"^(\tadd\.s32 \s*%r\d+, ){R}", r"\1%rd1"),
    ("register class", rf"^(\tadd\.s64 \s*%rd\d+, ){RD}", r"\1%r1"),
    ("register class", rf"^(\tadd\.(?:f32|rn\.f32) \s*%f\d+, ){F}", r"\1%r1"),
    ("register class", rf"^(\tsetp\.\w+\.\w+\s+){P}", r"\1%r1"),
    ("register class", rf"^(\tselp\.\w+\s.*, ){P};", r"\1%r1;"),
    ("register class", rf"^(\t@!?){P}", r"\1%r1"),
    ("integer type on float registers", r"^\tadd\.f32 (\s*%f)", r"\tadd.s32 \1"),
    ("integer type on float registers", r"^\tadd\.f64 (\s*%fd)", r"\tadd.s64 \1"),
    ("float type on integer registers", r"^\tadd\.s32 ", "\tadd.f32 "),
    ("float type on integer registers", r"^\tmul\.lo\.s32 ", "\tmul.f32 "),
    ("float type on integer registers", r"^\tld\.global\.u32 ", "\tld.global.f32 "),
    ("bit type on float registers", r"^\tld\.global\.f32 ", "\tld.global.b32 "),
    ("integer type on float registers", r"^\tld\.global\.f32 ", "\tld.global.u32 "),
    ("integer type on float registers", r"^\tst\.global\.f32 ", "\tst.global.s32 "),
    ("integer type on float registers", r"^\tmov\.f32 (\s*%f\d+, %f)", r"\tmov.u32 \1"),
    ("bit type on float registers", r"^\tmov\.f32 (\s*%f\d+, %f)", r"\tmov.b32 \1"),
    ("type width", r"^\tadd\.s32 ", "\tadd.s64 "),
    ("type width", r"^\tadd\.s64 ", "\tadd.s32 "),
    ("type width", r"^\tand\.b32 ", "\tand.b64 "),
    ("type width", r"^\tsetp\.(\w+)\.s32 ", r"\tsetp.\1.s64 "),
    ("type width", r"^\tld\.global\.u32 ", "\tld.global.u64 "),
    ("type narrower than register", r"^\tld\.param\.u32 ", "\tld.param.u16 "),
    ("type narrower than register", r"^\tld\.global\.u32 ", "\tld.global.u8 "),
    ("type narrower than register", r"^\tst\.global\.[ub]64 ", "\tst.global.u32 "),
    ("type narrower than register", r"^\tmov\.u32 (\s*%r\d+, %r)", r"\tmov.u16 \1"),
    ("type missing", r"^\tadd\.s32 ", "\tadd "),
    ("type missing", r"^\tld\.global\.\w+ ", "\tld.global "),
    ("type missing", r"^\tsetp\.(\w+)\.\w+ ", r"\tsetp.\1 "),
    ("type missing", r"^\tcvt\.rn\.f32\.s32 ", "\tcvt.rn.f32 "),
    ("type not of this instruction", r"^\tadd\.s32 ", "\tadd.b32 "),
    ("type not of this instruction", r"^\tadd\.s32 ", "\tadd.pred "),
    ("type not of this instruction", r"^\tand\.b32 ", "\tand.u32 "),
    ("type not of this instruction", r"^\tshl\.b32 ", "\tshl.u32 "),
    ("type not of this instruction", r"^\tneg\.s32 ", "\tneg.u32 "),
    ("type not of this instruction", r"^\tpopc\.b32 ", "\tpopc.u32 "),
    ("type not of this instruction", r"^\tmin\.s32 ", "\tmin.b32 "),
    ("type not of this instruction", r"^\trem\.s32 ", "\trem.f32 "),
    ("type not of this instruction", r"^\tselp\.b32 ", "\tselp.b8 "),
    ("type not of this instruction", r"^\tsetp\.(lt|ge)\.s32 ", r"\tsetp.\1.b32 "),
    ("type not of this instruction", r"^\tld\.global\.u32 ", "\tld.global.pred "),
    ("type not of this instruction", r"^\tmad\.lo\.s32 ", "\tmad.lo.b32 "),
    ("comparison not of this type", r"^\tsetp\.lt\.s32 ", "\tsetp.ltu.s32 "),
    ("comparison not of this type", r"^\tsetp\.ge\.s32 ", "\tsetp.hs.s32 "),
    ("comparison not of this type", r"^\tsetp\.lt\.f32 ", "\tsetp.lo.f32 "),
    # Modifiers.
    ("missing half of product", r"^\tmul\.lo\.s32 ", "\tmul.s32 "),
    ("missing half of product", r"^\tmad\.lo\.s32 ", "\tmad.s32 "),
    ("half of product on floats", r"^\tmul\.f32 ", "\tmul.lo.f32 "),
    ("wide product of 64 bits", r"^\tmul\.lo\.s64 ", "\tmul.wide.s64 "),
    ("missing rounding", r"^\tfma\.rn\.f32 ", "\tfma.f32 "),
    ("missing rounding", r"^\tcvt\.rn\.f32\.(s32|u32|f64) ", r"\tcvt.f32.\1 "),
    ("missing rounding", r"^\tcvt\.rzi\.s32\.f32 ", "\tcvt.s32.f32 "),
    ("missing rounding", r"^\tdiv\.rn\.f32 ", "\tdiv.f32 "),
    ("missing rounding", r"^\tsqrt\.rn\.f32 ", "\tsqrt.f32 "),
    ("missing approximation", r"^\tex2\.approx(?:\.ftz)?\.f32 ", "\tex2.f32 "),
    ("missing approximation", r"^\trsqrt\.approx(?:\.ftz)?\.f32 ", "\trsqrt.rn.f32 "),
    ("surplus rounding", r"^\tcvt\.u64\.u32 ", "\tcvt.rn.u64.u32 "),
    ("surplus rounding", r"^\tcvt\.f64\.f32 ", "\tcvt.rn.f64.f32 "),
    ("surplus rounding", r"^\tadd\.s32 ", "\tadd.rn.s32 "),
    ("surplus rounding", r"^\tmax\.f32 ", "\tmax.rn.f32 "),
    ("surplus saturation", r"^\tadd\.f64 ", "\tadd.sat.f64 "),
    ("surplus saturation", r"^\tadd\.(u32|s64) ", r"\tadd.sat.\1 "),
    ("surplus flush", r"^\tadd\.f64 ", "\tadd.ftz.f64 "),
    ("surplus flush", r"^\tadd\.s32 ", "\tadd.ftz.s32 "),
    ("two roundings", r"^\tfma\.rn\.f32 ", "\tfma.rn.rz.f32 "),
    ("modifiers in another order", r"^\tfma\.rn\.f32 ", "\tfma.f32.rn "),
    ("modifiers in another order", r"^\tsetp\.(\w+)\.(s32|f32) ", r"\tsetp.\2.\1 "),
    ("modifiers in another order", r"^\tld\.global\.(\w+) ", r"\tld.\1.global "),
    ("modifier twice", r"^\tld\.global\.(\w+) ", r"\tld.global.global.\1 "),
    # Operands.
    ("missing operand", r"^(\t(?:add|mul|and|fma|mad|max|sub|selp|setp)\.[^;{]*), [^,;{}]+;", drop_last_operand),
    ("missing operand", r"^(\t(?:mov|cvt|neg|not)\.[^;{]*), [^,;{}]+;", drop_last_operand),
    ("missing operand", r"^(\t(?:st|atom)\.[^;{]*), [^,;{}]+;", drop_last_operand),
    ("missing operand", r"^\tbar\.sync\s+\d+;", "\tbar.sync;"),
    ("surplus operand", r"^(\t(?:add|mul|and|fma|mad|max|sub|setp)\.[^;{]*)(, [^,;{}]+);", double_last_operand),
    ("surplus operand", r"^(\t(?:mov|cvt|neg|not|ld)\.[^;{]*)(, [^,;{}]+);", double_last_operand),
    ("surplus operand", r"^\tret;", "\tret %r1;"),
    ("destination is a constant", rf"^(\tadd\.s32 \s*){R}", r"\g<1>5"),
    ("destination is a special register", rf"^(\tmov\.u32 \s*){R}", r"\1%tid.x"),
    ("destination is a memory operand", rf"^(\tadd\.s32 \s*){R}", r"\1[%rd1]"),
    ("memory operand where a register belongs", rf"^(\tadd\.s32 \s*%r\d+, ){R}", r"\1[%rd1]"),
    ("special register as operand", rf"^(\tadd\.s32 \s*%r\d+, ){R}", r"\1%tid.x"),
    ("special register of 64 bits", rf"^(\tmov\.u32 \s*%r\d+, )%tid\.x", r"\1%clock64"),
    ("float constant in integer instruction", r"^(\tadd\.s32 \s*%r\d+, %r\d+, )-?\d+;", r"\g<1>0f3F800000;"),
    ("float constant in integer instruction", r"^(\tadd\.s32 \s*%r\d+, %r\d+, )-?\d+;", r"\g<1>1.5;"),
    ("integer constant in float instruction", r"^(\t(?:add|mul)\.f32 \s*%f\d+, %f\d+, )\S+;", r"\g<1>1;"),
    ("double constant in float instruction", r"^(\t(?:add|mul)\.f32 \s*%f\d+, %f\d+, )\S+;", r"\g<1>0d3FF0000000000000;"),
    ("float constant malformed", r"0f[0-9A-F]{8}", "0f3F80000G"),
    ("float constant malformed", r"0f([0-9A-F]{7})[0-9A-F]", r"0f\1"),
    ("constant too large", r"^(\tadd\.s32 \s*%r\d+, %r\d+, )-?\d+;", r"\g<1>99999999999;"),
    ("constant too large", r"^(\tadd\.s32 \s*%r\d+, %r\d+, )-?\d+;", r"\g<1>99999999999999999999999;"),
    ("constant malformed", r"^(\tadd\.s32 \s*%r\d+, %r\d+, )-?\d+;", r"\g<1>0x;"),
    ("constant malformed", r"^(\tadd\.s32 \s*%r\d+, %r\d+, )-?\d+;", r"\g<1>12ab;"),
    ("negated register", rf"^(\tadd\.s32 \s*%r\d+, ){R}", r"\1-%r1"),
    ("inverted predicate in arithmetic", rf"^(\tadd\.s32 \s*%r\d+, ){R}", r"\1!%r1"),
    ("shift by a wide register", r"^(\tsh[lr]\.[bsu]32 \s*%r\d+, %r\d+, )\S+;", r"\1%rd1;"),
    ("register as table of lop3", r"^(\tlop3\.b32 .*, )0x\w+;", r"\1%r1;"),
    ("table of lop3 too large", r"^(\tlop3\.b32 .*, )0x\w+;", r"\g<1>256;"),
    # Memory.
    ("state space", r"^\tld\.global\.", "\tld.reg."),
    ("state space", r"^\tst\.global\.", "\tst.const."),
    ("state space", r"^\tld\.global\.", "\tld.param."),
    ("state space", r"^\tld\.param\.", "\tld.global."),
    ("state space", r"^\tld\.param\.", "\tld.shared."),
    ("state space", r"^\tld\.shared\.", "\tld.sharde."),
    ("state space", r"^\tcvta\.to\.global\.", "\tcvta.to.reg."),
    ("no state space", r"^\tatom\.(global|shared)\.", "\tatom."),
    ("address register of 32 bits", rf"^(\tld\.global\.[a-z0-9.]+\s+%\w+, \[){RD}", r"\1%r1"),
    ("address is a float", rf"^(\tst\.global\.[a-z0-9.]+\s+\[){RD}", r"\1%f1"),
    ("address is a predicate", rf"^(\tst\.global\.[a-z0-9.]+\s+\[){RD}", r"\1%p1"),
    ("address with two registers", rf"^(\tld\.global\.[a-z0-9.]+\s+%\w+, \[){RD}", r"\1%rd1+%rd2"),
    ("address minus constant", r"(\[%rd\d+)\+(\d+)\]", r"\1-\2]"),
    ("address plus minus constant", r"(\[%rd\d+)\+(\d+)\]", r"\1+-\2]"),
    ("address times constant", r"(\[%rd\d+)\+(\d+)\]", r"\1*\2]"),
    ("address offset too large", r"(\[%rd\d+)\+(\d+)\]", r"\1+99999999999]"),
    ("parameter offset outside", r"\[(\w+_param_\d+)\]", r"[\1+4096]"),
    ("vector width", r"\.v4\.", ".v3."),
    ("vector width", r"\.v4\.", ".v2."),
    ("vector width", r"\.v2\.", ".v4."),
    ("vector width", r"\.v4\.", ".v8."),
    ("vector width", r"\.v2\.", "."),
    ("vector missing", r"^(\tld\.global\.)(f32|u32|b32) ", r"\1v4.\2 "),
    ("vector too short", r"\{(%\w+), (%\w+), (%\w+), %\w+\}", r"{\1, \2, \3}"),
    ("vector too long", r"\{(%\w+), (%\w+)\}", r"{\1, \2, \1}"),
    ("vector of mixed registers", r"\{%f\d+, (%f\d+)", r"{%r1, \1"),
    ("vector with a constant", r"^(\tld\..*)\{%\w+, ", r"\1{5, "),
    ("vector with the same register twice", r"^(\tld\.[a-z0-9.]+\s+)\{(%\w+), %\w+", r"\1{\2, \2"),
    ("cache operator", r"^\tld\.global\.(\w+) ", r"\tld.global.wt.\1 "),
    ("cache operator", r"^\tst\.global\.(\w+) ", r"\tst.global.ca.\1 "),
    ("cache operator on volatile", r"^\tld\.volatile\.global\.", "\tld.volatile.global.cg."),
    ("read-only load of shared memory", r"^\tld\.shared\.(\w+) ", r"\tld.shared.nc.\1 "),
    ("scope without ordering", r"^\tld\.global\.(\w+) ", r"\tld.gpu.global.\1 "),
    ("ordering without scope", r"^\tld\.global\.(\w+) ", r"\tld.acquire.global.\1 "),
    ("ordering of a load on a store", r"^\tst\.global\.(\w+) ", r"\tst.acquire.gpu.global.\1 "),
    # Declarations.
    ("alignment", r"\.align \d+", ".align 3"),
    ("alignment", r"\.align \d+", ".align 0"),
    ("alignment", r"\.align \d+", ".align -4"),
    ("alignment", r"\.align \d+", ".align"),
    ("alignment", r"\.align \d+", ".align 256"),
    ("array bounds", r"^(\t*\.(?:shared|local|global) .*)\[\d+\];", r"\1[-1];"),
    ("array bounds", r"^(\t*\.(?:shared|local|global) .*)\[\d+\];", r"\1[%r1];"),
    ("array bounds", r"^(\t*\.(?:shared|local|global) .*)\[(\d+)\];", r"\1[1 << unknown];"),
    ("array bounds", r"^(\t*\.(?:shared|local|global) .*)\[(\d+)\];", r"\1[1.5];"),
    ("array bounds", r"^(\t*\.(?:shared|local|global) .*)\[\d+\];", r"\1[];"),
    ("array bounds", r"^(\t*\.(?:shared|local) .*)\[\d+\];", r"\1[0];"),
    ("array bounds", r"^(\t*\.(?:shared|local) .*)\[\d+\];", r"\1[9999999];"),
    ("initialiser too long", r"= \{", "= {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, "),
    ("initialiser unknown symbol", r"= \{[^}]*\};", "= {nowhere};"),
    ("initialiser not closed", r"\};$", ";"),
    ("initialiser of shared memory", r"^(\t*\.shared .*)\[(\d+)\];", r"\1[\2] = {1};"),
    ("float in integer initialiser", r"(\.(?:b8|u32|b32) \w+\[\d+\] = \{)", r"\g<1>1.5, "),
    ("variable of predicates", r"^(\t*\.shared .*)\.b8 ", r"\1.pred "),
    ("register in parameter list", r"^\t\.param \.u64 ", "\t.reg .u64 "),
    ("parameter type", r"^\t\.param \.u32 ", "\t.param .u33 "),
    ("parameter type", r"^\t\.param \.u32 ", "\t.param .pred "),
    ("parameter space missing", r"^\t\.param \.u32 ", "\t.u32 "),
    ("parameter comma missing", r"^(\t\.param .*),$", r"\1"),
    ("shared variable as parameter", r"^\t\.param \.u32 ", "\t.shared .u32 "),
    ("launch bound of zero", r"^\.maxntid \d+", ".maxntid 0"),
    ("launch bound of zero", r"^\.reqntid \d+", ".reqntid 0"),
    ("launch bound negative", r"^\.(max|req)ntid \d+", r".\1ntid -32"),
    ("launch bound missing", r"^\.(max|req)ntid.*", r".\1ntid"),
    ("launch bounds of four dimensions", r"^\.(max|req)ntid \d+.*", r".\1ntid 32, 1, 1, 1"),
    ("launch bounds twice", r"^\.(max|req)ntid \d+.*", r".maxntid 32\n.reqntid 32"),
    ("entry with a result", r"^\.visible \.entry (\w+)\($", r".visible .entry (.param .u32 result) \1("),
    ("extern with a body", r"^\.visible \.entry ", ".extern .entry "),
    ("linkage twice", r"^\.visible \.entry ", ".visible .weak .entry "),
    # Calls.
    ("unknown function", r"^\t?(_Z\w+), *$", "nowhere, "),
    ("argument not declared", r"^(\t*)(param0)(,|$)", r"\1param77\3"),
    ("argument missing", r"^(\s*)param0,\s*$", ""),
    ("result missing", r"^(\tcall(?:\.uni)? )\(retval0\), ", r"\1"),
    ("result missing", r"^(\t*call\.uni) \(retval0\),\s*$", r"\1"),
    ("surplus result", r"^(\s*(?:call(?:\.uni)? )?)\(retval0\), ", r"\1(retval0, retval0), "),
    ("argument type", r"^(\s*\.param )\.b32 (param0;)", r"\1.b64 \2"),
    ("result type", r"^(\s*\.param )\.b32 (retval0;)", r"\1.b64 \2"),
    ("result alignment", r"^(\s*\.param )\.align \d+ (\.b8 retval0)", r"\1\2"),
    ("missing prototype", r"^\s*prototype_\d+ :.*", ""),
    ("unknown prototype", r"^(\s*), prototype_(\d+);", r"\1, prototype_9999;"),
    ("call of an entry", r"^(\tret;)", "\tcall reverse_dyn;\n\\1"),
    ("call of a variable", r"^(\tret;)", "\t.shared .b32 callee; call callee;\n\\1"),
    # Warps, barriers, atomics, tables.
    ("shuffle without mask", r"^(\tshfl\.sync\..*), [^,]+;", r"\1;"),
    ("shuffle without .sync", r"^\tshfl\.sync\.", "\tshfl."),
    ("shuffle mode", r"^\tshfl\.sync\.\w+\.", "\tshfl.sync.left."),
    ("shuffle type", r"^(\tshfl\.sync\.\w+)\.b32", r"\1.b64"),
    ("shuffle of a wide register", rf"^(\tshfl\.sync\.\w+\.b32\s*[^,]*, ){R}", r"\1%rd1"),
    ("shuffle's predicate", r"(\tshfl\.sync\.\w+\.b32\s*%r\d+)\|%p\d+", r"\1|%r1"),
    ("vote without mask", r"^(\tvote\.sync\..*), [^,]+;", r"\1;"),
    ("vote mode", r"^\tvote\.sync\.\w+\.", "\tvote.sync.most."),
    ("match type", r"^\tmatch\.any\.sync\.b32", "\tmatch.any.sync.u32"),
    ("match.any with a predicate", r"^(\tmatch\.any\.sync\.b32\s*%r\d+)", r"\1|%p1"),
    ("reduction type", r"^\tredux\.sync\.(\w+)\.\w+", r"\tredux.sync.\1.s64"),
    ("barrier number", r"^(\tbar\.sync\s+)\d+", r"\g<1>16"),
    ("barrier number", r"^(\tbar\.sync\s+)\d+", r"\1%rd1"),
    ("barrier thread count", r"^(\tbar(?:rier)?\.sync\s+\d+), \d+", r"\1, 33"),
    ("atomic operation", r"^(\tatom\.[a-z.]*)\.add\.", r"\1.plus."),
    ("atomic operation", r"^(\tatom\.[a-z.]*)\.add\.", r"\1.sub."),
    ("atomic type", r"^(\tatom\.[a-z.]*)\.add\.u32", r"\1.add.b32"),
    ("atomic type", r"^(\tatom\.[a-z.]*)\.add\.u32", r"\1.add.s16"),
    ("atomic type", r"^(\tatom\.[a-z.]*)\.(or|xor|and)\.b32", r"\1.\2.u32"),
    ("atomic type", r"^(\tatom\.[a-z.]*)\.add\.f32", r"\1.min.f32"),
    ("atomic type", r"^(\tatom\.[a-z.]*)\.inc\.u32", r"\1.inc.u64"),
    ("atomic of constant memory", r"^\tatom\.(global|shared)\.", "\tatom.const."),
    ("atomic scope", r"^\tatom\.global\.", "\tatom.global.warp."),
    ("compare-and-swap without a value", r"^(\tatom\.[a-z.]*cas\..*), [^,]+;", r"\1;"),
    ("fence scope", r"^\tmembar\.\w+", "\tmembar.block"),
    ("table with unknown label", r"\.branchtargets ONE", ".branchtargets NOWHERE"),
    ("unknown table", r"(brx\.idx \S+, )CASES", r"\1NO_CASES"),
    ("table as label", r"(@p bra )OTHER", r"\1CASES"),
    ("label as table", r"(brx\.idx \S+, )CASES", r"\1ONE"),
    # Asynchronous copies and matrices.
    ("copy size", r"^(\t\s*(?:@%p\d+ )?cp\.async\.c[ag]\..*, )(?:0x)?\d+", r"\g<1>5"),
    ("copy size", r"^(\t\s*(?:@%p\d+ )?cp\.async\.cg\..*, )(?:0x)?\d+", r"\g<1>4"),
    ("copy direction", r"cp\.async\.(c[ag])\.shared\.global", r"cp.async.\1.global.shared"),
    ("copy group in a register", r"(cp\.async\.wait_group) \s*\d+", r"\1 %r1"),
    ("matrix shape", r"mma\.sync\.aligned\.m16n8k16", "mma.sync.aligned.m16n8k17"),
    ("matrix shape", r"mma\.sync\.aligned\.m16n8k16", "mma.sync.aligned.m16n8k8"),
    ("matrix type", r"f32\.f16\.f16\.f32", "f32.f16.bf16.f32"),
    ("matrix layout", r"(mma\.sync\.aligned\.m16n8k\d+\.)row\.col", r"\1col.row"),
    ("matrix layout", r"(mma\.sync\.aligned\.m16n8k\d+\.)row\.col\.", r"\1"),
    ("matrix operand too short", r"^(\t\s*mma\.sync.*)\{ ?(%\w+), (%\w+), (%\w+), (%\w+) ?\}", r"\1{\2, \3}"),
    ("matrix load count", r"(ldmatrix\.sync\.aligned\.m8n8\.)x4", r"\1x3"),
    ("matrix load count", r"(ldmatrix\.sync\.aligned\.m8n8\.)x4", r"\1x2"),
    ("matrix load without .aligned", r"ldmatrix\.sync\.aligned\.", "ldmatrix.sync."),
    # Harmless changes, which must stay so.
    ("blank lines", r"^(\tret;)", "\n\n\\1\n\n"),
    ("comment", r"^(\tret;)", "\t/* one\n two */ \\1 // three"),
    ("other label name", r"^(\tret;)", "LAST: $under_score:\n\\1"),
    ("signedness of a load", r"^\tld\.global\.u32 ", "\tld.global.s32 "),
    ("signedness of an addition", r"^\tadd\.s32 ", "\tadd.u32 "),
    ("guard on anything", r"^\t(add\.s32|mov\.u32|shl\.b32) ", r"\t@%p1 \1 "),
    ("signed type on a bit register", r"^\tmov\.b32 (\s*%r\d+, %r)", r"\tmov.s32 \1"),
    ("explicit weak", r"^\tst\.global\.(\w+) ", r"\tst.weak.global.\1 "),
    ("cache hint level", r"^\tld\.global\.(\w+) ", r"\tld.global.cg.\1 "),
    ("newer version", r"^\.version \S+", ".version 9.5"),
]


def variants(name, text):
    """(kind, line number, old line, new line) for every kind and place in a file."""
    lines = text.split("\n")
    for index, (kind, pattern, replacement) in enumerate(KINDS):
        regex = re.compile(pattern)
        for number, line in enumerate(lines, 1):
            if not regex.search(line):
                continue
            new = CUT if replacement == CUT else regex.sub(replacement, line, count=1)
            if new != line:
                yield index, kind, number, line, new


def choose(files):
    """For every kind `SITES` variants, in as many files as possible, the same ones at every run."""
    found = {}
    for name, text in files.items():
        for index, kind, number, old, new in variants(name, text):
            found.setdefault(index, {}).setdefault(name, []).append((kind, number, old, new))
    for index in range(len(KINDS)):
        places = found.get(index, {})
        if not places:
            raise SystemExit(f"no place for kind {KINDS[index]}")
        names = sorted(places)
        # Kinds start at different files, so that all files are used.
        start = index * 7 % len(names)
        for turn in range(SITES):
            name = names[(start + turn) % len(names)]
            lap = (start + turn) // len(names) if len(names) < SITES else 0
            sites = places[name]
            if turn >= len(names) and lap >= len(sites):
                break
            kind, number, old, new = sites[(index + 3 * lap) % len(sites)]
            yield kind, name, number, old, new
