//! The functions that expressions may call, with as much of their types as the checker needs.

use super::types::Ty;

/// What a function takes and gives.
#[derive(Clone, Copy)]
pub(super) enum Shape {
    /// Its first argument is a text.
    OfText(Gives),
    /// `size`.
    Size,
    /// Its arguments are not looked at.
    Other(Gives),
}

/// What a function gives.
#[derive(Clone, Copy)]
pub(super) enum Gives {
    Anything,
    Bool,
    Int,
    Uint,
    Double,
    Text,
    Texts,
    Bytes,
    Duration,
    Timestamp,
}

impl Shape {
    /// The type of the value.
    pub(super) fn result(self) -> Ty {
        let (Self::OfText(gives) | Self::Other(gives)) = self else {
            return Ty::Int;
        };
        match gives {
            Gives::Anything => Ty::Dyn,
            Gives::Bool => Ty::Bool,
            Gives::Int => Ty::Int,
            Gives::Uint => Ty::Uint,
            Gives::Double => Ty::Double,
            Gives::Text => Ty::String,
            Gives::Texts => Ty::list(Ty::String),
            Gives::Bytes => Ty::Bytes,
            Gives::Duration => Ty::Duration,
            Gives::Timestamp => Ty::Timestamp,
        }
    }
}

/// The shape of a function, if there is one of this name.
pub(super) fn find(name: &str) -> Option<Shape> {
    Some(match name {
        "size" => Shape::Size,
        "endsWith" | "matches" | "startsWith" => Shape::OfText(Gives::Bool),
        "charAt" | "lowerAscii" | "replace" | "substring" | "trim" | "upperAscii" => {
            Shape::OfText(Gives::Text)
        }
        "split" | "findAll" => Shape::OfText(Gives::Texts),
        "find" => Shape::OfText(Gives::Text),
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
        | "isSorted"
        | "isURL"
        | "isUnspecified"
        | "math.isFinite"
        | "math.isInf"
        | "math.isNaN"
        | "sets.contains"
        | "sets.equivalent"
        | "sets.intersects" => Shape::Other(Gives::Bool),
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
        | "strings.quote" => Shape::Other(Gives::Text),
        "int" | "asInteger" | "compareTo" | "family" | "getDate" | "getDayOfMonth" | "getDayOfWeek"
        | "getDayOfYear" | "getFullYear" | "getHours" | "getMilliseconds" | "getMinutes" | "getMonth"
        | "getSeconds" | "indexOf" | "lastIndexOf" | "major" | "minor" | "prefixLength" | "sign" => {
            Shape::Other(Gives::Int)
        }
        "uint" => Shape::Other(Gives::Uint),
        "double" | "asApproximateFloat" => Shape::Other(Gives::Double),
        "bytes" | "base64.decode" => Shape::Other(Gives::Bytes),
        "duration" => Shape::Other(Gives::Duration),
        "timestamp" => Shape::Other(Gives::Timestamp),
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
        | "lists.range"
        | "masked"
        | "max"
        | "min"
        | "name"
        | "namespace"
        | "optFlatMap"
        | "optMap"
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
        | "value" => Shape::Other(Gives::Anything),
        name if name.starts_with("format.") || name.starts_with("math.") => Shape::Other(Gives::Anything),
        _ => return None,
    })
}
