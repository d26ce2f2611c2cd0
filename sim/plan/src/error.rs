//! Errors in a plan.

/// A plan that cannot run. Every message names the element at fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    #[error("two nodes are called `{name}`; names are unique in a plan")]
    NodeNameTwice { name: String },
    /// A node number is out of range.
    #[error("{place} names node {index}, but there are {count}, numbered from 0")]
    NoSuchNode {
        /// The element with the number, such as `link 3`.
        place: String,
        index: usize,
        count: usize,
    },
    /// A link number is out of range.
    #[error("{place} names link {index}, but there are {count}, numbered from 0")]
    NoSuchLink {
        /// The element with the number, such as `route 3`.
        place: String,
        index: usize,
        count: usize,
    },
    /// An element requires a router, and the node is not one.
    #[error("{place} wants a router, but node `{node}` is none")]
    NotARouter { place: String, node: String },
    /// A consumer or producer has no link, too many links, or one that leads to no router.
    #[error(
        "node `{node}` has {links} links to routers and {others} others; it must have one, to a \
         router, or several if it is a consumer with a window"
    )]
    AppLinks {
        node: String,
        /// Its links to routers.
        links: usize,
        /// Its other links.
        others: usize,
    },
    /// A link connects a node to itself.
    #[error("link {link} leads from node `{node}` to itself")]
    LinkToItself { link: usize, node: String },
    /// A route uses a link of another node.
    #[error(
        "route {route} of `{prefix}` at node `{node}` leaves by link {link}, which does not touch \
         that node"
    )]
    RouteLink {
        route: usize,
        prefix: String,
        /// The router's name.
        node: String,
        link: usize,
    },
    /// A value is out of range or unknown.
    #[error("{place}: `{key}` {problem}")]
    Value {
        /// The element, such as ``node `r1` ``.
        place: String,
        key: &'static str,
        /// What is wrong and what to write.
        problem: String,
    },
    /// The plan of a consumer or producer is invalid.
    #[error("node `{node}`: {problem}")]
    App { node: String, problem: String },
}
