//! The functions that expressions may call, with as much of their types as the checker needs.

use super::types::Ty;

/// What a function gives; `signatures` says what it takes.
#[derive(Clone, Copy)]
pub(super) struct Shape(Gives);

/// What a function gives.
#[derive(Clone, Copy)]
pub(super) enum Gives {
    Anything,
    Bool,
    Int,
    Uint,
    Double,
    Text,
    Bytes,
    Duration,
    Timestamp,
}

impl Shape {
    /// The type of the value.
    pub(super) fn result(self) -> Ty {
        match self.0 {
            Gives::Anything => Ty::Dyn,
            Gives::Bool => Ty::Bool,
            Gives::Int => Ty::Int,
            Gives::Uint => Ty::Uint,
            Gives::Double => Ty::Double,
            Gives::Text => Ty::String,
            Gives::Bytes => Ty::Bytes,
            Gives::Duration => Ty::Duration,
            Gives::Timestamp => Ty::Timestamp,
        }
    }
}

/// The shape of a function, if there is one of this name.
pub(super) fn find(name: &str) -> Option<Shape> {
    Some(match name {
        "allowed"
        | "contains"
        | "containsCIDR"
        | "containsIP"
        | "errored"
        | "hasValue"
        | "ip.isCanonical"
        | "isCIDR"
        | "isGlobalUnicast"
        | "isGreaterThan"
        | "isIP"
        | "isInteger"
        | "isLessThan"
        | "isLinkLocalMulticast"
        | "isLinkLocalUnicast"
        | "isLoopback"
        | "isQuantity"
        | "isSemver"
        | "bool"
        | "isSorted"
        | "isURL"
        | "isUnspecified"
        | "sets.contains"
        | "sets.equivalent"
        | "sets.intersects" => Shape(Gives::Bool),
        "string"
        | "join"
        | "base64.encode"
        | "error"
        | "format"
        | "getEscapedPath"
        | "getHost"
        | "getHostname"
        | "getPort"
        | "getScheme"
        | "jsonpatch.escapeKey"
        | "reason"
        | "strings.quote" => Shape(Gives::Text),
        "int" | "asInteger" | "compareTo" | "family" | "getDate" | "getDayOfMonth" | "getDayOfWeek"
        | "getDayOfYear" | "getFullYear" | "getHours" | "getMilliseconds" | "getMinutes" | "getMonth"
        | "getSeconds" | "indexOf" | "lastIndexOf" | "major" | "minor" | "prefixLength" | "sign" => {
            Shape(Gives::Int)
        }
        "uint" => Shape(Gives::Uint),
        "double" | "asApproximateFloat" => Shape(Gives::Double),
        "bytes" | "base64.decode" => Shape(Gives::Bytes),
        "duration" => Shape(Gives::Duration),
        "timestamp" => Shape(Gives::Timestamp),
        "add"
        | "check"
        | "cidr"
        | "cel.bind"
        | "distinct"
        | "dyn"
        | "fieldSelector"
        | "first"
        | "flatten"
        | "format.named"
        | "getQuery"
        | "group"
        | "ip"
        | "labelSelector"
        | "last"
        | "masked"
        | "max"
        | "min"
        | "name"
        | "namespace"
        | "optional.none"
        | "optional.of"
        | "optional.ofNonZeroValue"
        | "or"
        | "orValue"
        | "patch"
        | "path"
        | "quantity"
        | "resource"
        | "reverse"
        | "semver"
        | "serviceAccount"
        | "slice"
        | "sort"
        | "sortBy"
        | "sub"
        | "subresource"
        | "sum"
        | "type"
        | "url"
        | "validate"
        | "value" => Shape(Gives::Anything),
        name if super::signatures::known(name) => Shape(Gives::Anything),
        _ => return None,
    })
}
