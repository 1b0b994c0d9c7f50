//! Names: of types, of what is not declared, and paths of them.

use cel::{common::ast::Expr, parser::Expression};

pub(super) fn undeclared(name: &str) -> String {
    format!("undeclared reference to '{name}'")
}

/// `a.b.c`, where the tree is that.
pub(super) fn qualified(tree: &Expression) -> Option<String> {
    match &tree.expr {
        Expr::Ident(name) => Some(name.strip_prefix('.').unwrap_or(name).to_owned()),
        Expr::Select(select) if !select.test => Some(format!("{}.{}", qualified(&select.operand)?, select.field)),
        _ => None,
    }
}

/// Names of types.
pub(super) fn type_name(name: &str) -> Option<&'static str> {
    const NAMES: [&str; 16] = [
        "bool",
        "int",
        "uint",
        "double",
        "string",
        "bytes",
        "list",
        "map",
        "null_type",
        "type",
        "optional_type",
        "google.protobuf.Duration",
        "google.protobuf.Timestamp",
        "kubernetes.Quantity",
        "net.IP",
        "net.CIDR",
    ];
    NAMES.into_iter().find(|known| *known == name)
}
