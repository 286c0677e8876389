//! Operations that could not run in the call that issued them, and what they wait for.
//!
//! **Rule.** An operation runs inside the call that issues it if all that it comes after is done. So it is for almost all work:
//! the order of issue is the order of execution, errors are known at once, and a program gets the same bits each time. Else
//! it is a *task* of the engine thread of its context (`worker`), and the call returns, as CUDA's do. Tasks begin with
//!
//! - a host function, which never runs inside the call that issues it: it may wait for what its caller does next;
//! - a kernel whose threads all wait for something that they do not do themselves (host memory that the host will
//!   write, or memory that an operation of another stream will): the call sets it aside, and the engine thread asks it again
//!   and again whether it can go on;
//! - a wait for another process's record of an event, which is asked again and again as well;
//! - what follows one of those on its stream, or waits for an event behind it.
//!
//! **Order.** Each task knows the tasks that it comes after: those in front of it on its stream, the legacy default stream's
//! and the blocking streams' of each other, those that an event stands for which its stream waits for, and the nodes of its
//! graph that it depends on. Of tasks that can run, the one that was issued first does, so that results do not depend on time
//! where CUDA's order does not leave them open.
//!
//! **Waiting.** Calls that wait (for a stream, an event, a context; copies of host memory that is not pinned; frees;
//! unloading) wait for those tasks. A kernel that waits is a deadlock if the host waits for it and nobody is left who could end
//! that: no other task can run, and nobody else can write what it looks at, in this process or another (`worker::is_hopeless`).
//!
//! **Errors.** A task that fails makes its context answer the error from then on; the tasks behind it are dropped, but for
//! the callbacks of `cuStreamAddCallback`, which are told.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::software::checks::Caller;
use crate::software::tables::{
    objects::{StreamKey, Ticket},
    order::Lane,
    work::{Rest, Step, Todo},
};

/// When a launch that waits is asked again.
pub(crate) struct Poll {
    pub next: Instant,
    pub pause: Duration,
    /// Since when nothing has changed, and after how long that was said last.
    pub since: Instant,
    pub said: Duration,
    /// It changes memory while it waits.
    pub changing: bool,
    /// How often it was asked while its context ended.
    pub closing: u32,
}

impl Poll {
    /// Between two questions: short at first, then longer.
    const PAUSE: (Duration, Duration) = (Duration::from_micros(50), Duration::from_millis(2));

    pub fn now(changing: bool) -> Poll {
        let now = Instant::now();
        Poll { next: now, pause: Poll::PAUSE.0, since: now, said: Duration::ZERO, changing, closing: 0 }
    }

    /// It was asked, and waits.
    pub fn again(&mut self, changing: bool, hopeless: bool) {
        let now = Instant::now();
        self.changing = changing;
        if changing {
            (self.pause, self.since, self.said) = (Poll::PAUSE.0, now, Duration::ZERO);
        }
        // Where nobody can end it, there is nothing to wait for.
        let pause = if changing || hopeless { Duration::ZERO } else { self.pause };
        self.next = now + pause;
        self.pause = (self.pause * 2).min(Poll::PAUSE.1);
    }

    /// For how long it has waited, if somebody is to be told now: first `after` so long, then each time after twice as long.
    pub fn due(&mut self, after: Duration) -> Option<Duration> {
        let waited = self.since.elapsed();
        if waited < after.max(self.said.saturating_mul(2)) {
            return None;
        }
        self.said = waited;
        Some(waited)
    }
}

pub(crate) struct Task {
    pub context: u64,
    after: Vec<Ticket>,
    /// `None` while it runs.
    rest: Option<Rest>,
    poll: Option<Poll>,
    caller: Arc<Caller>,
    /// Its host function runs.
    on_host: bool,
}

/// The tasks that a stream's next operation comes after.
struct Tail {
    context: u64,
    blocking: bool,
    tickets: Vec<Ticket>,
}

#[derive(Default)]
pub(crate) struct Queue {
    next: Ticket,
    /// Unfinished, in order of issue.
    tasks: BTreeMap<Ticket, Task>,
    tails: HashMap<StreamKey, Tail>,
    /// Contexts that have an engine thread.
    pub threads: HashSet<u64>,
    /// Contexts that end: what waits in them is given up.
    pub closing: HashSet<u64>,
    /// Threads of the host that wait for tasks.
    pub waiting: usize,
    /// The process ends: nothing begins any more.
    pub over: bool,
}

/// What an engine thread does next.
pub(crate) enum Next {
    Run(Ticket, Rest, Option<Poll>, Arc<Caller>),
    /// Nothing before somebody says so, or this much time has passed.
    Sleep(Option<Duration>),
}

impl Queue {
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    pub fn is_done(&self, ticket: Ticket) -> bool {
        !self.tasks.contains_key(&ticket)
    }

    fn unfinished(&self, tickets: &mut Vec<Ticket>) {
        tickets.sort_unstable();
        tickets.dedup();
        tickets.retain(|t| self.tasks.contains_key(t));
    }

    /// The tasks that the next operation of a stream comes after; empty if it can run now.
    pub fn before(&self, lane: Lane) -> Vec<Ticket> {
        if self.tasks.is_empty() {
            return Vec::new();
        }
        let mut tickets = Vec::new();
        for (key, tail) in &self.tails {
            let legacy = lane.blocking
                && tail.context == lane.context
                && match lane.key {
                    StreamKey::Legacy(_) => tail.blocking,
                    _ => matches!(key, StreamKey::Legacy(_)),
                };
            if *key == lane.key || legacy {
                tickets.extend(&tail.tickets);
            }
        }
        self.unfinished(&mut tickets);
        tickets
    }

    /// The tasks of some contexts.
    pub fn of_contexts(&self, wanted: impl Fn(u64) -> bool) -> Vec<Ticket> {
        self.tasks.iter().filter(|(_, t)| wanted(t.context)).map(|(ticket, _)| *ticket).collect()
    }

    /// The context of the first of these tasks that is not done.
    pub fn context_of(&self, tickets: &[Ticket]) -> Option<u64> {
        tickets.iter().find_map(|t| self.tasks.get(t)).map(|task| task.context)
    }

    /// The next operation of a stream comes after these tasks too.
    pub fn wait_for(&mut self, lane: Lane, tickets: &[Ticket]) {
        let mut all = self.tails.remove(&lane.key).map_or_else(Vec::new, |t| t.tickets);
        all.extend(tickets);
        self.unfinished(&mut all);
        if !all.is_empty() {
            let Lane { context, blocking, .. } = lane;
            self.tails.insert(lane.key, Tail { context, blocking, tickets: all });
        }
    }

    /// Adds a task behind others.
    pub fn add(&mut self, context: u64, mut after: Vec<Ticket>, rest: Rest, caller: Arc<Caller>) -> Ticket {
        self.unfinished(&mut after);
        self.next += 1;
        let poll = rest.launch.as_ref().map(|l| Poll::now(l.is_changing()));
        self.tasks.insert(self.next, Task { context, after, rest: Some(rest), poll, caller, on_host: false });
        self.next
    }

    /// A task is done.
    pub fn finish(&mut self, ticket: Ticket) {
        self.tasks.remove(&ticket);
        if self.tasks.is_empty() {
            self.tails.clear();
        }
    }

    /// A task that ran has something left.
    pub fn put_back(&mut self, ticket: Ticket, rest: Rest, poll: Option<Poll>) {
        if let Some(task) = self.tasks.get_mut(&ticket) {
            (task.rest, task.poll, task.on_host) = (Some(rest), poll, false);
        }
    }

    /// A task's host function begins.
    pub fn calls_host(&mut self, ticket: Ticket) {
        if let Some(task) = self.tasks.get_mut(&ticket) {
            task.on_host = true;
        }
    }

    fn is_ready(&self, task: &Task) -> bool {
        task.rest.is_some() && task.after.iter().all(|t| self.is_done(*t))
    }

    /// Takes what the engine thread of a context is to do.
    pub fn take(&mut self, context: u64) -> Next {
        if self.over {
            return Next::Sleep(None);
        }
        let now = Instant::now();
        let (mut found, mut asked) = (None, None::<(Instant, Ticket)>);
        for (ticket, task) in self.tasks.iter().filter(|(_, t)| t.context == context) {
            if !self.is_ready(task) {
                continue;
            }
            match &task.poll {
                None => {
                    found = Some(*ticket);
                    break;
                }
                // A launch that waits gives way to what can run, and to one that was asked before it.
                Some(poll) if asked.is_none_or(|(next, _)| poll.next < next) => asked = Some((poll.next, *ticket)),
                Some(_) => {}
            }
        }
        let due = asked.filter(|(next, _)| *next <= now).map(|(_, ticket)| ticket);
        let Some((ticket, task)) = found.or(due).and_then(|t| Some((t, self.tasks.get_mut(&t)?))) else {
            return Next::Sleep(asked.map(|(next, _)| next.saturating_duration_since(now)));
        };
        match task.rest.take() {
            Some(rest) => Next::Run(ticket, rest, task.poll.take(), Arc::clone(&task.caller)),
            None => Next::Sleep(None),
        }
    }

    /// Whether some task but `me` runs, can run, or gets on while it waits.
    pub fn others_run(&self, me: Ticket) -> bool {
        self.tasks.iter().any(|(ticket, task)| {
            *ticket != me
                && match &task.poll {
                    Some(poll) => poll.changing,
                    None => task.rest.is_none() || self.is_ready(task),
                }
        })
    }

    /// Whether a task waits for another process.
    pub fn awaits(&self) -> bool {
        let first =
            |task: &Task| task.rest.as_ref().and_then(|r| Some(matches!(r.todos.front()?.step, Step::Await(_))));
        self.tasks.values().any(|task| self.is_ready(task) && first(task) == Some(true))
    }

    /// Whether something runs or can run that is no host function.
    pub fn is_active(&self) -> bool {
        let begins_on_host =
            |rest: &Rest| rest.launch.is_none() && rest.todos.front().is_some_and(|t| matches!(t.step, Step::Host(_)));
        self.tasks.values().any(|task| match (&task.poll, &task.rest) {
            (Some(poll), _) => poll.changing,
            (None, None) => !task.on_host,
            (None, Some(rest)) => self.is_ready(task) && !begins_on_host(rest),
        })
    }
}

/// An operation with the places of those in its batch that it depends on, and the tasks behind which it waits for events.
pub(crate) struct BatchNode {
    pub rest: Rest,
    pub deps: Vec<usize>,
    pub events: Vec<Ticket>,
}

/// What one call puts on a stream: an operation, or the nodes of a graph in an order in which dependencies come first.
pub(crate) struct Batch {
    pub lane: Lane,
    pub nodes: Vec<BatchNode>,
}

impl Batch {
    pub fn one(lane: Lane, todos: Vec<Todo>, events: Vec<Ticket>) -> Batch {
        Batch { lane, nodes: vec![BatchNode { rest: Rest::of(todos), deps: Vec::new(), events }] }
    }
}
