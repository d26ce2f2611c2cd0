//! What can be wrong with a plan.

/// A plan that cannot be run. Every message names the culprit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    #[error("two nodes are called `{name}`; names are unique in a plan")]
    NodeNameTwice { name: String },
    /// A number names no node.
    #[error("{place} names node {index}, but there are {count}, numbered from 0")]
    NoSuchNode {
        /// Who names it, such as `link 3`.
        place: String,
        index: usize,
        count: usize,
    },
    /// A number names no link.
    #[error("{place} names link {index}, but there are {count}, numbered from 0")]
    NoSuchLink {
        /// Who names it, such as `route 3`.
        place: String,
        index: usize,
        count: usize,
    },
    /// Something is said of a node that is no router.
    #[error("{place} wants a router, but node `{node}` is none")]
    NotARouter { place: String, node: String },
    /// A consumer or producer has no link, or more than it may, or one that leads to no router.
    #[error(
        "node `{node}` has {links} links to routers and {others} others; it must have one, to a \
         router, or several if it is a consumer with a window"
    )]
    AppLinks {
        node: String,
        /// Its links that lead to routers.
        links: usize,
        /// Its other links.
        others: usize,
    },
    /// A link leads back to where it starts.
    #[error("link {link} leads from node `{node}` to itself")]
    LinkToItself { link: usize, node: String },
    /// A route leaves by a link that is not the router's.
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
    /// A value is out of its range or unknown.
    #[error("{place}: `{key}` {problem}")]
    Value {
        /// Where, such as ``node `r1` ``.
        place: String,
        key: &'static str,
        /// What is wrong with it and what would be right.
        problem: String,
    },
    /// A consumer's or producer's part of the plan is wrong.
    #[error("node `{node}`: {problem}")]
    App { node: String, problem: String },
}
