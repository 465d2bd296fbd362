//! What operators take and give.

use kube_cel::cel::common::ast::operators;

use super::check::{Checked, no_overload};
use super::types::Ty;

/// The type of an operator's value; none if it is no operator.
pub(super) fn operator(name: &str, arguments: &[&Ty]) -> Option<Checked> {
    let refuse = || Err(no_overload(name, arguments));
    let known = |ty: &Ty| !matches!(ty, Ty::Dyn | Ty::Free);
    Some(match (name, arguments) {
        (operators::CONDITIONAL, [condition, yes, no]) => {
            if !condition.fits(&Ty::Bool) || !yes.fits(no) {
                refuse()
            } else {
                Ok(yes.same(no).unwrap_or(Ty::Dyn))
            }
        }
        (operators::LOGICAL_AND | operators::LOGICAL_OR, [a, b]) => {
            if a.fits(&Ty::Bool) && b.fits(&Ty::Bool) {
                Ok(Ty::Bool)
            } else {
                refuse()
            }
        }
        (operators::LOGICAL_NOT | operators::NOT_STRICTLY_FALSE, [a]) => {
            if a.fits(&Ty::Bool) {
                Ok(Ty::Bool)
            } else {
                refuse()
            }
        }
        (operators::EQUALS | operators::NOT_EQUALS, [a, b]) => {
            if a.fits(b) {
                Ok(Ty::Bool)
            } else {
                refuse()
            }
        }
        (
            operators::LESS | operators::LESS_EQUALS | operators::GREATER | operators::GREATER_EQUALS,
            [a, b],
        ) => {
            let ordered = |ty: &Ty| {
                !matches!(
                    ty,
                    Ty::List(_)
                        | Ty::Map(_)
                        | Ty::Keyed(..)
                        | Ty::Object(..)
                        | Ty::Record(_)
                        | Ty::Optional(_)
                        | Ty::Named(_)
                        | Ty::Type(_)
                )
            };
            if ordered(a) && ordered(b) && (a.fits(b) || (a.is_number() && b.is_number())) {
                Ok(Ty::Bool)
            } else {
                refuse()
            }
        }
        (operators::IN, [_, Ty::Dyn]) => Ok(Ty::Bool),
        (operators::IN, [item, Ty::Map(_)]) if item.fits(&Ty::String) => Ok(Ty::Bool),
        (operators::IN, [item, Ty::Keyed(keys, _)]) if item.fits(keys) => Ok(Ty::Bool),
        (operators::IN, [item, Ty::List(of)]) if item.fits(of) => Ok(Ty::Bool),
        (operators::INDEX, [Ty::Dyn | Ty::Null, _]) => Ok(Ty::Dyn),
        (operators::INDEX, [Ty::Optional(of), at]) => {
            let item = operator(operators::INDEX, &[of, at])?;
            item.map(|item| Ty::Optional(Box::new(item)))
        }
        (operators::INDEX, [Ty::List(items), at]) if at.fits(&Ty::Int) => Ok((**items).clone().decided()),
        (operators::INDEX, [Ty::Map(values), at]) if at.fits(&Ty::String) => Ok((**values).clone().decided()),
        (operators::INDEX, [Ty::Keyed(keys, values), at]) if at.fits(keys) => {
            Ok((**values).clone().decided())
        }
        (operators::NEGATE, [a]) if matches!(a, Ty::Int | Ty::Double | Ty::Dyn) => Ok((*a).clone()),
        (operators::IN | operators::INDEX | operators::NEGATE, _) => refuse(),
        (
            operators::ADD
            | operators::SUBSTRACT
            | operators::MULTIPLY
            | operators::DIVIDE
            | operators::MODULO,
            [a, b],
        ) => match (known(a), known(b)) {
            (true, true) if **a == Ty::Null || **b == Ty::Null => with_null(name, a, b),
            (true, true) => arithmetic(name, a, b),
            (false, false) => Some(Ty::Dyn),
            _ => half_known(name, a, b),
        }
        .map_or_else(refuse, Ok),
        _ => return None,
    })
}

fn arithmetic(name: &str, a: &Ty, b: &Ty) -> Option<Ty> {
    use Ty::{Bytes, Double, Duration, Int, List, String, Timestamp, Uint};
    Some(match (name, a, b) {
        (_, Int, Int) => Int,
        (_, Uint, Uint) => Uint,
        (operators::MODULO, ..) => return None,
        (_, Double, Double) => Double,
        (operators::ADD, String, String) => String,
        (operators::ADD, Bytes, Bytes) => Bytes,
        (operators::ADD, List(x), List(y)) if x.fits(y) => match x.same(y) {
            Some(of) => Ty::list(of),
            None => Ty::list(Ty::Dyn),
        },
        (operators::ADD, Duration, Timestamp)
        | (operators::ADD | operators::SUBSTRACT, Timestamp, Duration) => Timestamp,
        (operators::ADD | operators::SUBSTRACT, Duration, Duration)
        | (operators::SUBSTRACT, Timestamp, Timestamp) => Duration,
        _ => return None,
    })
}

/// A duration or a time may be null, so null may be one of them.
fn with_null(name: &str, a: &Ty, b: &Ty) -> Option<Ty> {
    let kinds = |ty: &Ty| match ty {
        Ty::Null => vec![Ty::Duration, Ty::Timestamp],
        other => vec![other.clone()],
    };
    let of = kinds(b);
    let mut results = kinds(a).into_iter().flat_map(|a| {
        let with = move |b: &Ty| arithmetic(name, &a, b);
        of.iter().filter_map(with).collect::<Vec<_>>()
    });
    let first = results.next()?;
    Some(if results.all(|other| other == first) {
        first
    } else {
        Ty::Dyn
    })
}

/// The other side may be anything: the type is that of all that it could be, if they agree.
fn half_known(name: &str, a: &Ty, b: &Ty) -> Option<Ty> {
    let any = |ty: &Ty| matches!(ty, Ty::Dyn | Ty::Free);
    let candidates = [
        Ty::Int,
        Ty::Uint,
        Ty::Double,
        Ty::String,
        Ty::Bytes,
        Ty::Duration,
        Ty::Timestamp,
        Ty::list(Ty::Free),
    ];
    let mut results = candidates.iter().filter_map(|candidate| {
        let (a, b) = (
            if any(a) { candidate } else { a },
            if any(b) { candidate } else { b },
        );
        arithmetic(name, a, b)
    });
    let first = results.next()?;
    Some(if results.all(|other| other == first) {
        first
    } else {
        Ty::Dyn
    })
}
