//! The threads that run tasks: one for each context that has had one, and one for its host functions.
//!
//! Both begin when they are first needed and end with their context. The engine thread holds no lock while it runs a task.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::codes::{Code, Res};
use crate::lock::lock;
use crate::software::checks::{self, Caller};
use crate::software::report::{report, say};
use crate::software::run::{
    callback,
    execute::{self, Ran},
};
use crate::software::tables::{
    objects::Ticket,
    ops::HostCall,
    queue::{Next, Poll},
    software::{Software, engine},
    state::State,
    work::Rest,
};
use crate::software::thread;

/// For how long no thread of the host has called the driver when those that do not wait count as done with it.
const QUIET: Duration = Duration::from_secs(10);

/// For how long a launch with an instruction limit may wait while the host waits for it.
const LIMITED: Duration = Duration::from_secs(60);

/// Lines about who waits.
const SHOWN: usize = 8;

/// How often a launch that changes memory is asked again when its context ends.
const CLOSING: u32 = 64;

/// Operations that run in the calls that issued them.
static INLINE: AtomicUsize = AtomicUsize::new(0);

/// Counts an operation that runs in its call.
pub(crate) struct Inline(());

impl Inline {
    pub fn enter() -> Inline {
        INLINE.fetch_add(1, Ordering::SeqCst);
        Inline(())
    }
}

impl Drop for Inline {
    fn drop(&mut self) {
        INLINE.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Sees to it that a context has an engine thread.
pub(crate) fn ensure(state: &mut State, software: &'static Software, context: u64) -> Res {
    if !state.queue.threads.insert(context) {
        return Ok(());
    }
    let name = "warpsmith engine".to_owned();
    let spawned =
        std::thread::Builder::new().name(name).spawn(move || Worker { software, context, host: None }.serve());
    spawned.map(drop).map_err(|error| {
        state.queue.threads.remove(&context);
        report(format!("the engine thread of a context cannot be started: {error}"));
        Code::OPERATING_SYSTEM
    })
}

/// A host function for the thread that calls them.
struct Call {
    ticket: Ticket,
    call: HostCall,
    /// What a callback is told.
    status: i32,
    rest: Rest,
}

struct Worker {
    software: &'static Software,
    context: u64,
    host: Option<Sender<Call>>,
}

impl Worker {
    fn serve(mut self) {
        let software = self.software;
        let mut state = lock(&software.state);
        loop {
            match state.queue.take(self.context) {
                Next::Run(ticket, rest, poll, caller) => {
                    let failed = state.check_failed(self.context).err();
                    let closing = state.queue.closing.contains(&self.context);
                    drop(state);
                    let ran = caller.act(|| {
                        let step = AssertUnwindSafe(|| execute::go_on(self.context, ticket, rest, failed, closing));
                        catch_unwind(step).unwrap_or_else(|_| execute::panicked(self.context))
                    });
                    state = self.settle(ticket, ran, poll, &caller, closing);
                    software.changed.notify_all();
                }
                Next::Sleep(time) => {
                    let gone = !state.contexts.contains_key(&self.context);
                    if gone && state.queue.of_contexts(|c| c == self.context).is_empty() {
                        state.queue.threads.remove(&self.context);
                        return;
                    }
                    state = match time {
                        None => software.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                        Some(time) => {
                            software.changed.wait_timeout(state, time).unwrap_or_else(PoisonError::into_inner).0
                        }
                    };
                }
            }
        }
    }

    /// Notes what came of running a task.
    fn settle(
        &mut self,
        ticket: Ticket,
        ran: Ran,
        poll: Option<Poll>,
        caller: &Arc<Caller>,
        closing: bool,
    ) -> MutexGuard<'static, State> {
        let mut state = lock(&self.software.state);
        match ran {
            Ran::Done => state.queue.finish(ticket),
            Ran::Host(call, status, rest) => {
                state.queue.calls_host(ticket);
                drop(state);
                self.call(Call { ticket, call, status, rest });
                state = lock(&self.software.state);
            }
            Ran::Awaits(rest) => self.awaits(&mut state, ticket, rest, poll, closing),
            Ran::Waiting(rest) => state = self.waits(state, ticket, rest, poll, caller, closing),
        }
        state
    }

    /// Another process was looked for and is still waited for.
    fn awaits(&self, state: &mut State, ticket: Ticket, rest: Rest, poll: Option<Poll>, closing: bool) {
        if closing {
            say("a stream still waited for an event of another process when its context was destroyed");
            state.fail(self.context, Code::CONTEXT_IS_DESTROYED);
            return state.queue.finish(ticket);
        }
        let mut poll = poll.unwrap_or_else(|| Poll::now(false));
        poll.again(false, false);
        if let Some(waited) = poll.due(self.software.progress) {
            say(&format!("a stream waits for an event of another process: for {:.0} s", waited.as_secs_f64()));
        }
        state.queue.put_back(ticket, rest, Some(poll));
    }

    /// A launch was asked and still waits.
    fn waits(
        &self,
        mut state: MutexGuard<'static, State>,
        ticket: Ticket,
        mut rest: Rest,
        poll: Option<Poll>,
        caller: &Arc<Caller>,
        closing: bool,
    ) -> MutexGuard<'static, State> {
        let Some(launch) = rest.launch.take() else { return state };
        let changing = launch.is_changing();
        let mut poll = poll.unwrap_or_else(|| Poll::now(changing));
        poll.closing += u32::from(closing);
        if closing && (!changing || poll.closing > CLOSING) {
            say(&format!("kernel `{}` still waited when its context was destroyed: it was ended", launch.name()));
            // What comes after it does not run.
            state.fail(self.context, Code::CONTEXT_IS_DESTROYED);
            state.queue.finish(ticket);
            return state;
        }
        let alone = !state.queue.others_run(ticket) && INLINE.load(Ordering::SeqCst) == 0;
        let stuck = !changing && alone && state.queue.waiting > 0;
        let hopeless =
            stuck && !launch.sees_others() && !state.queue.awaits() && is_hopeless(&state, launch.sees_host());
        let limited = stuck && launch.is_limited() && poll.since.elapsed() > LIMITED;
        poll.again(changing, hopeless);
        if limited || hopeless && launch.is_stale() {
            drop(state);
            caller.act(|| execute::deadlock(self.context, *launch));
            state = lock(&self.software.state);
            state.queue.finish(ticket);
            return state;
        }
        if let Some(waited) = poll.due(self.software.progress) {
            let who = launch.describe();
            let who: Vec<&str> = who.lines().take(SHOWN).collect();
            say(&format!(
                "still in kernel `{}`: for {:.0} s {}",
                launch.name(),
                waited.as_secs_f64(),
                who.join("\n  ")
            ));
        }
        rest.launch = Some(launch);
        state.queue.put_back(ticket, rest, Some(poll));
        state
    }

    /// Gives a host function to the thread for them, which begins with the first.
    fn call(&mut self, call: Call) {
        let software = self.software;
        let host = self.host.take().or_else(|| {
            let (sender, calls) = channel();
            let name = "warpsmith host functions".to_owned();
            std::thread::Builder::new().name(name).spawn(move || serve_host(software, &calls)).ok().map(|_| sender)
        });
        match host {
            // The thread ends with this sender.
            Some(host) => {
                let _ = host.send(call);
                self.host = Some(host);
            }
            // The engine's own thread is not the caller's either.
            None => finish_call(software, call),
        }
    }
}

fn serve_host(software: &'static Software, calls: &Receiver<Call>) {
    for call in calls {
        finish_call(software, call);
    }
}

fn finish_call(software: &'static Software, call: Call) {
    callback::call_host(call.call, call.status);
    let mut state = lock(&software.state);
    if call.rest.todos.is_empty() {
        state.queue.finish(call.ticket);
    } else {
        state.queue.put_back(call.ticket, call.rest, None);
    }
    software.changed.notify_all();
}

/// Whether nobody is left who could change what a launch looks at, while the host waits for it.
fn is_hopeless(state: &State, sees_host: bool) -> bool {
    if sees_host {
        // Any thread of the process can write host memory.
        return foreign_threads().is_some_and(|n| n <= state.queue.waiting);
    }
    // Device memory is changed by calls of the driver.
    thread::callers() <= state.queue.waiting || quiet_for() > QUIET
}

/// For how long the driver has not been called.
fn quiet_for() -> Duration {
    static LAST: std::sync::Mutex<Option<(u64, Instant)>> = std::sync::Mutex::new(None);
    static CALLS: AtomicU64 = AtomicU64::new(0);
    let calls = thread::calls();
    let mut last = lock(&LAST);
    match &*last {
        Some((_, since)) if CALLS.swap(calls, Ordering::Relaxed) == calls => since.elapsed(),
        _ => {
            CALLS.store(calls, Ordering::Relaxed);
            *last = Some((calls, Instant::now()));
            Duration::ZERO
        }
    }
}

/// How many threads the process has beside the driver's own; `None` where that cannot be told.
fn foreign_threads() -> Option<usize> {
    let tasks = std::fs::read_dir("/proc/self/task").ok()?;
    let mut count = 0;
    for task in tasks {
        let name = std::fs::read_to_string(task.ok()?.path().join("comm")).unwrap_or_default();
        count += usize::from(!name.starts_with("warpsmith"));
    }
    Some(count)
}

/// At the end of the process: no task begins any more, and what the checks have seen is written down.
pub(crate) fn finish() {
    if let Ok(software) = engine() {
        // A thread that the exit cut short may hold the lock for ever.
        if let Ok(mut state) = software.state.try_lock() {
            state.queue.over = true;
        }
        software.changed.notify_all();
    }
    checks::finish();
}
