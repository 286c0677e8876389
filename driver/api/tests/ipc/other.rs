//! The other process: this test binary again, which does what it is told on its standard input, line by line, and answers on its
//! standard output.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use warpsmith_driver_api::*;

use crate::common::*;

pub const KERNELS: &str = r#"
.version 8.2
.target sm_90
.address_size 64

// p[i] = i * k for i < n, one block of 64 threads
.visible .entry fill(.param .u64 p, .param .u32 k, .param .u32 n)
{
    .reg .pred %p1; .reg .b32 %r<5>; .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [p]; ld.param.u32 %r1, [k]; ld.param.u32 %r2, [n]; mov.u32 %r3, %tid.x;
AGAIN:
    setp.ge.u32 %p1, %r3, %r2; @%p1 ret;
    mul.wide.u32 %rd2, %r3, 4; add.u64 %rd3, %rd1, %rd2; mul.lo.u32 %r4, %r3, %r1; st.global.u32 [%rd3], %r4;
    add.u32 %r3, %r3, 64; bra AGAIN;
}

// *out = sum of p[0..n], one thread
.visible .entry sum(.param .u64 p, .param .u32 n, .param .u64 out)
{
    .reg .pred %p1; .reg .b32 %r<5>; .reg .b64 %rd<5>;
    ld.param.u64 %rd1, [p]; ld.param.u32 %r1, [n]; ld.param.u64 %rd2, [out]; mov.u32 %r2, 0; mov.u32 %r3, 0;
AGAIN:
    ld.global.u32 %r4, [%rd1]; add.u32 %r2, %r2, %r4; add.u64 %rd1, %rd1, 4; add.u32 %r3, %r3, 1;
    setp.lt.u32 %p1, %r3, %r1; @%p1 bra AGAIN;
    st.global.u32 [%rd2], %r2; ret;
}

// p[0] is a flag, p[1] a count that only who has the flag changes: turn `who`, `who` + 2, … up to 2 * rounds
.visible .entry turns(.param .u64 p, .param .u32 who, .param .u32 rounds)
{
    .reg .pred %p<3>; .reg .b32 %r<8>; .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [p]; ld.param.u32 %r1, [who]; ld.param.u32 %r2, [rounds]; mov.u32 %r3, 0;
WAIT:
    ld.acquire.sys.global.u32 %r4, [%rd1]; setp.ne.u32 %p1, %r4, %r1; @%p1 bra WAIT;
    ld.global.u32 %r5, [%rd1+4]; add.u32 %r5, %r5, 1; st.global.u32 [%rd1+4], %r5;
    add.u32 %r6, %r4, 1; st.release.sys.global.u32 [%rd1], %r6;
    add.u32 %r1, %r1, 2; add.u32 %r3, %r3, 1; setp.lt.u32 %p2, %r3, %r2; @%p2 bra WAIT;
    ret;
}

// arrives at p[0], waits for `all` to have done so, and adds 1 to p[1] and p[2] `times` times, to the latter by cas
.visible .entry count(.param .u64 p, .param .u32 all, .param .u32 times, .param .u64 out)
{
    .reg .pred %p<4>; .reg .b32 %r<12>; .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [p]; ld.param.u32 %r1, [all]; ld.param.u32 %r2, [times]; ld.param.u64 %rd2, [out]; mov.u32 %r3, 0;
    atom.global.sys.add.u32 %r4, [%rd1], 1;
WAIT:
    ld.acquire.sys.global.u32 %r4, [%rd1]; setp.lt.u32 %p1, %r4, %r1; @%p1 bra WAIT;
AGAIN:
    atom.global.sys.add.u32 %r5, [%rd1+4], 1;
CAS:
    ld.relaxed.sys.global.u32 %r6, [%rd1+8]; add.u32 %r7, %r6, 1; atom.global.sys.cas.b32 %r8, [%rd1+8], %r6, %r7;
    setp.ne.u32 %p2, %r8, %r6; @%p2 bra CAS;
    add.u32 %r3, %r3, 1; setp.lt.u32 %p3, %r3, %r2; @%p3 bra AGAIN;
    st.global.u32 [%rd2], %r5; ret;
}
"#;

pub fn hex(handle: &IpcHandle) -> String {
    handle.reserved.iter().map(|b| format!("{:02x}", *b as u8)).collect()
}

pub fn unhex(text: &str) -> IpcHandle {
    let mut reserved = [0; 64];
    reserved
        .iter_mut()
        .enumerate()
        .for_each(|(i, b)| *b = u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap() as _);
    IpcHandle { reserved }
}

pub fn memory_handle(p: CUdeviceptr) -> (CUresult, IpcHandle) {
    let mut handle = IpcHandle { reserved: [0; 64] };
    // SAFETY: a live place.
    (unsafe { cuIpcGetMemHandle(&mut handle, p) }, handle)
}

pub fn event_handle(e: CUevent) -> (CUresult, IpcHandle) {
    let mut handle = IpcHandle { reserved: [0; 64] };
    // SAFETY: a live place.
    (unsafe { cuIpcGetEventHandle(&mut handle, e) }, handle)
}

pub fn open(handle: IpcHandle, flags: u32) -> (CUresult, CUdeviceptr) {
    let mut p = 0;
    // SAFETY: a live place.
    (unsafe { cuIpcOpenMemHandle_v2(&mut p, handle, flags) }, p)
}

pub fn open_event(handle: IpcHandle) -> (CUresult, CUevent) {
    let mut e = CUevent::NULL;
    // SAFETY: a live place.
    (unsafe { cuIpcOpenEventHandle(&mut e, handle) }, e)
}

pub fn shared_event() -> CUevent {
    let mut e = CUevent::NULL;
    // SAFETY: a live place. 6: of several processes, without time.
    ok(unsafe { cuEventCreate(&mut e, 6) });
    e
}

macro_rules! cu {
    ($call:expr) => {
        // SAFETY: no pointers, or to live places.
        unsafe { $call }
    };
}

pub fn sum(p: CUdeviceptr, n: u32, s: CUstream) -> CUdeviceptr {
    let out = upload(&[0]);
    ok(launch(function(load(KERNELS), "sum"), 1, 1, 0, s, &[arg(&p), arg(&n), arg(&out)]));
    out
}

pub fn fill(p: CUdeviceptr, k: u32, n: u32, s: CUstream) {
    ok(launch(function(load(KERNELS), "fill"), 1, 64, 0, s, &[arg(&p), arg(&k), arg(&n)]));
}

/// The other process.
pub struct Other {
    child: Child,
    input: ChildStdin,
    pub lines: Receiver<String>,
}

impl Other {
    pub fn new() -> Other {
        Other::with(&[])
    }

    pub fn with(environment: &[(&str, &str)]) -> Other {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "other::other", "--ignored", "--nocapture", "--test-threads=1"])
            .env("WARPSMITH_TEST_CHILD", "1")
            .envs(environment.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if let Some(at) = line.find("said: ") {
                    let _ = sender.send(line[at + 6..].to_owned());
                }
            }
        });
        Other { child, input, lines }
    }

    pub fn tell(&mut self, order: &str) {
        writeln!(self.input, "{order}").unwrap();
        self.input.flush().unwrap();
    }

    #[track_caller]
    pub fn hear(&self) -> String {
        self.lines.recv_timeout(Duration::from_secs(120)).expect("the other process says nothing")
    }

    #[track_caller]
    pub fn ask(&mut self, order: &str) -> String {
        self.tell(order);
        self.hear()
    }

    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What the other process has.
#[derive(Default)]
struct Mine {
    p: CUdeviceptr,
    e: Option<CUevent>,
    s: Option<CUstream>,
    out: CUdeviceptr,
}

/// Carries out an order; the answer, if there is one.
fn obey(mine: &mut Mine, words: &[&str]) -> Option<String> {
    let number = |at: usize| words[at].parse::<u32>().unwrap();
    let s = mine.s.unwrap_or(CUstream::NULL);
    let code = match words[0] {
        "open" => {
            let (code, p) = open(unhex(words[1]), 1);
            mine.p = if code == 0 { p } else { mine.p };
            return Some(format!("{code} {p}"));
        }
        "open-event" => {
            let (code, e) = open_event(unhex(words[1]));
            mine.e = Some(e);
            code
        }
        "alloc" => {
            mine.p = upload(&vec![0; number(1) as usize]);
            return Some(hex(&memory_handle(mine.p).1));
        }
        "event" => {
            mine.e = Some(shared_event());
            return Some(hex(&event_handle(mine.e.unwrap()).1));
        }
        "sum" => {
            let out = sum(mine.p, number(1), s);
            return Some(download(out, 1)[0].to_string());
        }
        "fill" => {
            fill(mine.p, number(1), number(2), s);
            cu!(cuStreamSynchronize(s))
        }
        "poke" => cu!(cuMemsetD32_v2(mine.p, number(1), number(2) as usize)),
        "turns" => {
            let f = function(load(KERNELS), "turns");
            let code = launch(f, 1, 1, 0, s, &[arg(&mine.p), arg(&number(1)), arg(&number(2))]);
            println!("said: begins {code}");
            cu!(cuCtxSynchronize())
        }
        "count" => {
            let (f, out) = (function(load(KERNELS), "count"), upload(&[0]));
            let code = launch(f, 1, 64, 0, s, &[arg(&mine.p), arg(&number(1)), arg(&number(2)), arg(&out)]);
            assert_eq!(code, 0);
            cu!(cuCtxSynchronize())
        }
        "record" => cu!(cuEventRecord(mine.e.unwrap(), s)),
        "query" => cu!(cuEventQuery(mine.e.unwrap())),
        "synchronize" => cu!(cuEventSynchronize(mine.e.unwrap())),
        // A kernel behind the event, of which the answer comes later.
        "sum-behind" => {
            let s = *mine.s.get_or_insert_with(stream);
            ok(cu!(cuStreamWaitEvent(s, mine.e.unwrap(), 0)));
            mine.out = sum(mine.p, number(1), s);
            cu!(cuStreamQuery(s))
        }
        "result" => {
            ok(cu!(cuStreamSynchronize(mine.s.unwrap())));
            return Some(download(mine.out, 1)[0].to_string());
        }
        // A kernel that never ends by itself, with a record of the event behind it.
        "hang" => {
            let (s, own) = (*mine.s.get_or_insert_with(stream), upload(&[0, 0]));
            let f = function(load(KERNELS), "turns");
            ok(launch(f, 1, 1, 0, s, &[arg(&own), arg(&7u32), arg(&1u32)]));
            cu!(cuEventRecord(mine.e.unwrap(), s))
        }
        "close" => cu!(cuIpcCloseMemHandle(mine.p)),
        "free" => cu!(cuMemFree_v2(mine.p)),
        "free-async" => cu!(cuMemFreeAsync(mine.p, s)),
        "destroy" => cu!(cuEventDestroy_v2(mine.e.unwrap())),
        "export" => memory_handle(mine.p).0,
        "export-event" => event_handle(mine.e.unwrap()).0,
        "report" => return software::last_report().map(|r| r.replace('\n', " ")).or(Some(String::new())),
        "other-context" => {
            let mut context = CUcontext::NULL;
            ok(cu!(cuCtxCreate_v2(&mut context, 0, 0)));
            let (code, _) = open(unhex(words[1]), 1);
            ok(cu!(cuCtxDestroy_v2(context)));
            code
        }
        other => panic!("{other}"),
    };
    Some(code.to_string())
}

/// Not a test of its own: the other process of the tests here.
#[test]
#[ignore = "run by the other tests, in a process of its own"]
fn other() {
    if std::env::var_os("WARPSMITH_TEST_CHILD").is_none() {
        return;
    }
    let _gpu = gpu();
    let mut mine = Mine::default();
    for line in std::io::stdin().lines().map_while(Result::ok) {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let Some(answer) = obey(&mut mine, &words) {
            println!("said: {answer}");
        }
    }
}
