//! Programs that this one starts, and that end with it: Ctrl-C leaves none of them behind, nor what they have started.

use std::io::{self, BufRead as _, BufReader, Read, Write as _};
use std::process::{Child, Command, ExitStatus, Output};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often an end, or a signal, is looked for.
const LOOK: Duration = Duration::from_millis(5);
/// How long a program has to end by itself, from the signal on.
const GRACE: Duration = Duration::from_secs(2);

/// A program that was started, and its end.
pub struct Guarded(Child);

/// Starts a program.
pub fn spawn(command: &mut Command) -> io::Result<Guarded> {
    let watch = watch();
    #[cfg(target_os = "linux")]
    {
        use std::os::unix::process::CommandExt as _;
        // SAFETY: two calls of the kernel, which allocate nothing; the arguments are plain numbers.
        unsafe {
            // What a program has started becomes this one's when the program ends, so that it is found.
            libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
            command.pre_exec(|| {
                // This program may be killed, and say nothing.
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0);
                Ok(())
            });
        }
    }
    let child = command.spawn()?;
    watch.alone.store(false, Ordering::SeqCst);
    Ok(Guarded(child))
}

impl Drop for Guarded {
    fn drop(&mut self) {
        watch().alone.store(true, Ordering::SeqCst);
    }
}

/// Runs a program to its end.
pub fn status(command: &mut Command) -> io::Result<ExitStatus> {
    spawn(command)?.wait()
}

impl Guarded {
    /// The program.
    pub fn child(&mut self) -> &mut Child {
        &mut self.0
    }

    /// How it ended, if it has. If this program was told to end, it ends the other first and does not return.
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        let status = self.0.try_wait()?;
        match watch().signal.load(Ordering::SeqCst) {
            0 => Ok(status),
            number => self.end_with(number),
        }
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        loop {
            if let Some(status) = self.try_wait()? {
                return Ok(status);
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Waits for its end, and for what threads have read of it.
    pub fn output(mut self, stdout: JoinHandle<Vec<u8>>, stderr: JoinHandle<Vec<u8>>) -> io::Result<Output> {
        let status = self.wait()?;
        let read = |thread: JoinHandle<Vec<u8>>| thread.join().unwrap_or_default();
        Ok(Output { status, stdout: read(stdout), stderr: read(stderr) })
    }

    /// Ends it at once, with what it has started.
    pub fn kill(&mut self) -> io::Result<()> {
        self.0.kill()?;
        self.0.wait()?;
        kill_descendants();
        Ok(())
    }

    /// Ends the program, which gets a while to do so itself, and then this one, by the signal.
    fn end_with(&mut self, number: usize) -> ! {
        let number = i32::try_from(number).unwrap_or(2);
        let told = Instant::now();
        let mut forwarded = false;
        while told.elapsed() < GRACE && matches!(self.0.try_wait(), Ok(None)) {
            // A terminal has told both.
            if !forwarded && (number != INTERRUPT || told.elapsed() > GRACE / 8) {
                forward(&self.0, number);
                forwarded = true;
            }
            std::thread::sleep(LOOK);
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
        kill_descendants();
        end(number)
    }
}

/// Reads a pipe to its end, so that the program never waits for a reader.
pub fn listen(pipe: Option<impl Read + Send + 'static>) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            // What came before a broken pipe is what there is.
            let _ = pipe.read_to_end(&mut bytes);
        }
        bytes
    })
}

/// The same for standard error, of which what the driver says of kernels that run long goes on at once.
pub fn listen_and_tell(pipe: Option<impl Read + Send + 'static>) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let (mut all, mut line) = (Vec::new(), Vec::new());
        let mut pipe = pipe.map(BufReader::new);
        while let Some(reader) = &mut pipe {
            line.clear();
            if !matches!(reader.read_until(b'\n', &mut line), Ok(n) if n > 0) {
                break;
            }
            if line.starts_with(b"warpsmith driver: still in kernel") {
                // Where standard error is closed, nobody is told.
                let _ = io::stderr().write_all(&line);
            }
            all.extend_from_slice(&line);
        }
        all
    })
}

/// What signals have said.
struct Watch {
    /// No program runs: a signal ends this one, as if nobody listened.
    alone: Arc<AtomicBool>,
    /// The signal that has told this program to end; 0: none has.
    signal: Arc<AtomicUsize>,
}

fn watch() -> &'static Watch {
    static WATCH: OnceLock<Watch> = OnceLock::new();
    WATCH.get_or_init(|| {
        let watch = Watch { alone: Arc::new(AtomicBool::new(true)), signal: Arc::default() };
        listen_for_signals(&watch);
        watch
    })
}

#[cfg(unix)]
const INTERRUPT: i32 = libc::SIGINT;

#[cfg(unix)]
fn listen_for_signals(watch: &Watch) {
    use signal_hook::flag::{register_conditional_default, register_usize};
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // Where it cannot be listened for, it ends this program as it did before.
        let _ = register_conditional_default(signal, Arc::clone(&watch.alone));
        let _ = register_usize(signal, Arc::clone(&watch.signal), signal as usize);
    }
}

#[cfg(unix)]
fn forward(child: &Child, number: i32) {
    if let Ok(process) = i32::try_from(child.id()) {
        // SAFETY: no pointers; the child has not been waited for, so that the number is its own.
        unsafe { libc::kill(process, number) };
    }
}

#[cfg(unix)]
fn end(number: i32) -> ! {
    let _ = signal_hook::low_level::emulate_default_handler(number);
    std::process::exit(128 + number)
}

/// Ends what the programs have started, which are this one's children now.
#[cfg(target_os = "linux")]
fn kill_descendants() {
    // Each round may bring up children of those that it ended.
    for _ in 0..64 {
        let own = descendants();
        if own.is_empty() {
            return;
        }
        for process in own {
            // SAFETY: no pointers. A process that has ended meanwhile is a child that nobody has waited for, and keeps its number.
            unsafe {
                libc::kill(process, libc::SIGKILL);
                libc::waitpid(process, std::ptr::null_mut(), libc::WNOHANG);
            }
        }
        std::thread::sleep(LOOK);
    }
}

#[cfg(not(target_os = "linux"))]
fn kill_descendants() {}

/// The processes below this one, as `/proc` lists them.
#[cfg(target_os = "linux")]
fn descendants() -> Vec<i32> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let numbers = entries.flatten().filter_map(|e| e.file_name().to_str()?.parse::<i32>().ok());
    let parents: Vec<(i32, i32)> = numbers.filter_map(|process| Some((process, parent_of(process)?))).collect();
    let mut below = vec![std::process::id() as i32];
    let mut at = 0;
    while let Some(&parent) = below.get(at) {
        below.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(process, _)| *process));
        at += 1;
    }
    below.split_off(1)
}

#[cfg(target_os = "linux")]
fn parent_of(process: i32) -> Option<i32> {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name in parentheses may hold anything.
    text.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(not(unix))]
const INTERRUPT: i32 = 2;

#[cfg(not(unix))]
fn listen_for_signals(_: &Watch) {}

#[cfg(not(unix))]
fn forward(_: &Child, _: i32) {}

#[cfg(not(unix))]
fn end(number: i32) -> ! {
    std::process::exit(128 + number)
}
