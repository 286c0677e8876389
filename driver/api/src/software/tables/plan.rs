//! Instantiated graphs, as data: a copy of the graph's nodes, and the order that they run in.

use std::sync::{Arc, Mutex};

use crate::software::tables::{
    objects::Ticket,
    ops::{Graph, Held, Op},
};

pub(crate) struct Exec {
    pub plan: Arc<Plan>,
    /// Two launches of one executable graph do not overlap: held by the one that runs in its call; the tasks of the last one.
    pub turn: Arc<Mutex<()>>,
    pub last: Vec<Ticket>,
    pub flags: u64,
    /// References to user objects that go with it.
    pub objects: Held,
}

#[derive(Clone)]
pub(crate) struct Plan {
    /// In order of creation in the original graph, whose handles name them.
    pub nodes: Vec<Planned>,
    pub order: Vec<usize>,
}

#[derive(Clone)]
pub(crate) struct Planned {
    pub id: u64,
    pub op: Op,
    /// Places in the list, sorted.
    pub deps: Vec<usize>,
    /// A node that is not does nothing, and its dependents run as if it had.
    pub enabled: bool,
}

impl Plan {
    pub fn of(graph: &Graph) -> Option<Plan> {
        let ids: Vec<u64> = graph.nodes.keys().copied().collect();
        let place = |id: &u64| ids.binary_search(id).ok();
        let nodes = graph
            .nodes
            .iter()
            .map(|(id, node)| {
                let mut deps = node.deps.iter().map(place).collect::<Option<Vec<usize>>>()?;
                deps.sort_unstable();
                Some(Planned { id: *id, op: node.op.clone(), deps, enabled: true })
            })
            .collect::<Option<Vec<Planned>>>()?;
        let order = graph.topological()?.iter().map(place).collect::<Option<Vec<usize>>>()?;
        Some(Plan { nodes, order })
    }
}
