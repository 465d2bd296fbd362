//! What may stand in the brackets of `a[b]`: texts, numbers, yes and no. All else is refused, whatever `a` is.

use kube_cel::cel::common::types::{CelBool, CelDouble, CelInt, CelString, CelUInt};
use kube_cel::cel::common::value::Val;
use kube_cel::cel::{ExecutionError, Value as Cel};

use super::described::{Described, Identity};
use super::type_values;

pub(super) fn check(by: &dyn Val) -> Result<(), ExecutionError> {
    let fine = by.downcast_ref::<CelString>().is_some()
        || by.downcast_ref::<CelInt>().is_some()
        || by.downcast_ref::<CelBool>().is_some()
        || by.downcast_ref::<CelDouble>().is_some()
        || by.downcast_ref::<CelUInt>().is_some();
    if fine {
        return Ok(());
    }
    check_value(&Cel::try_from(by)?)
}

pub(super) fn check_value(by: &Cel) -> Result<(), ExecutionError> {
    let kind = match by {
        Cel::String(_) | Cel::Int(_) | Cel::Bool(_) | Cel::Float(_) | Cel::UInt(_) => return Ok(()),
        by => internal_name(by),
    };
    let why = format!("invalid qualifier type: {kind}");
    Err(ExecutionError::function_error("_[_]", why))
}

/// What the reference implementation calls the type of a value inside.
fn internal_name(value: &Cel) -> &str {
    match (Described::of(value), type_values::name(value)) {
        (Some(Described::Object(_)), _) => "*common.unstructuredMap",
        (Some(Described::List(Identity::Place, ..)), _) => "*common.unstructuredList",
        (Some(Described::List(Identity::Item(_), ..)), _) => "*common.unstructuredSetList",
        (Some(Described::List(Identity::Fields(_), ..)), _) => "*common.unstructuredMapList",
        (None, "null_type") => "types.Null",
        (None, "bytes") => "types.Bytes",
        (None, "google.protobuf.Duration") => "types.Duration",
        (None, "google.protobuf.Timestamp") => "types.Timestamp",
        (None, "list") => "*types.baseList",
        (None, "map") => "*types.baseMap",
        (None, "type") => "*types.Type",
        (None, "optional_type") => "*types.Optional",
        (None, "kubernetes.Quantity") => "cel.Quantity",
        (None, "kubernetes.URL") => "cel.URL",
        (None, "kubernetes.Semver") => "cel.Semver",
        (None, "kubernetes.NamedFormat") => "cel.Format",
        (None, "net.IP") => "cel.IP",
        (None, "net.CIDR") => "cel.CIDR",
        (None, other) => other,
    }
}
