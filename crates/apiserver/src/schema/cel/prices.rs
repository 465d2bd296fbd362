//! What calls cost at most besides what they are called on, with the sizes of what they give.

use kube_cel::cel::common::ast::{Expr, LiteralValue, operators};

use super::estimate::{Estimate, Part, Range};
use super::meter::{AUTHORIZER_CHECK, LIST};
use super::types::Ty;

/// What reading a text costs per character.
const TEXT: f64 = 0.1;
/// What a regular expression costs per character.
const PATTERN: f64 = 0.25;
/// The longest regular expression of a named format.
const FORMAT_PATTERN: f64 = 128.0;

/// A call with what is known about its parts.
pub(super) struct Called<'c, 'a> {
    pub(super) name: &'c str,
    pub(super) target: Option<&'c Part<'a>>,
    pub(super) arguments: &'c [Part<'a>],
}

/// The cost of a call with its arguments, and the size of its value if that is known.
pub(super) struct Price {
    pub(super) cost: Range,
    pub(super) size: Option<Range>,
}

impl Price {
    fn of(cost: Range) -> Self {
        Self { cost, size: None }
    }

    fn with(cost: Range, size: Range) -> Self {
        Self {
            cost,
            size: Some(size),
        }
    }
}

const ONE: Range = Range::fixed(1);

pub(super) fn price(estimate: &Estimate<'_>, call: &Called<'_, '_>) -> Price {
    let costs = call.arguments.iter().map(|argument| argument.cost);
    let arguments = costs.fold(Range::fixed(0), Range::plus);
    match (call.name, call.arguments) {
        // One side may decide alone.
        (operators::LOGICAL_AND | operators::LOGICAL_OR, [a, b]) => Price::of(Range {
            min: a.cost.min,
            max: a.cost.plus(b.cost).max,
        }),
        (operators::CONDITIONAL, [condition, yes, no]) => Price::with(
            condition.cost.plus(yes.cost.or(no.cost)),
            yes.size_or_unknown().or(no.size_or_unknown()),
        ),
        _ => {
            let own = extension(estimate, call).or_else(|| standard(call));
            let own = own.unwrap_or_else(|| Price::of(ONE));
            Price {
                cost: own.cost.plus(arguments),
                size: own.size,
            }
        }
    }
}

/// What the language itself has.
fn standard(call: &Called<'_, '_>) -> Option<Price> {
    let first = || call.arguments.first().map(Part::size_or_unknown);
    Some(match (call.name, call.target, call.arguments) {
        ("format", Some(of), _) => Price::of(of.size_or_unknown().factor(TEXT)),
        ("bytes", None, [of]) if of.ty.fits(&Ty::String) => {
            let size = of.size_or_unknown();
            let longer = Range {
                min: size.min,
                max: size.max.wrapping_mul(4),
            };
            Price::with(size.factor(TEXT), longer)
        }
        ("string", None, [of]) if of.ty.fits(&Ty::Bytes) => {
            let size = of.size_or_unknown();
            let shorter = Range {
                min: size.min / 4,
                max: size.max,
            };
            Price::with(size.factor(TEXT), shorter)
        }
        ("strings.quote", None, [of]) => {
            let size = of.size_or_unknown();
            let longer = Range {
                min: size.min.wrapping_add(2),
                max: size.max.wrapping_mul(2).wrapping_add(2),
            };
            Price::with(size.factor(TEXT), longer)
        }
        ("startsWith" | "endsWith", Some(_), [_]) => Price::of(first()?.factor(TEXT)),
        (operators::IN, None, [_, within]) if !matches!(within.ty, Ty::Map(_) | Ty::Keyed(..)) => {
            Price::of(within.size_or_unknown())
        }
        ("matches", Some(of), [pattern]) => {
            Price::of(matching(of.size_or_unknown(), pattern.size_or_unknown()))
        }
        ("contains", Some(of), [part]) => {
            let (of, part) = (of.size_or_unknown(), part.size_or_unknown());
            Price::of(of.factor(TEXT).times(part.factor(TEXT)))
        }
        (operators::ADD, None, [a, b]) => {
            let size = a.size_or_unknown().plus(b.size_or_unknown());
            let both = |ty: &Ty| a.ty.fits(ty) && b.ty.fits(ty);
            let list = |part: &Part<'_>| matches!(part.ty, Ty::List(_) | Ty::Dyn);
            if both(&Ty::String) || both(&Ty::Bytes) {
                Price::with(size.factor(TEXT), size)
            } else if list(a) && list(b) {
                Price::with(ONE, size)
            } else {
                return None;
            }
        }
        (operators::EQUALS | operators::NOT_EQUALS, None, [a, b]) => Price::of(comparing(a, b)),
        (
            operators::LESS | operators::LESS_EQUALS | operators::GREATER | operators::GREATER_EQUALS,
            None,
            [a, b],
        ) => {
            let both = |ty: &Ty| a.ty.fits(ty) && b.ty.fits(ty);
            if !both(&Ty::String) && !both(&Ty::Bytes) {
                return None;
            }
            let cost = comparing(a, b);
            // What is not known may be a number.
            let dynamic = a.ty == Ty::Dyn && b.ty == Ty::Dyn;
            Price::of(if dynamic { cost.or(ONE) } else { cost })
        }
        _ => return None,
    })
}

/// Comparing ends with the shorter of both.
fn comparing(a: &Part<'_>, b: &Part<'_>) -> Range {
    let max = a.size_or_unknown().max.min(b.size_or_unknown().max);
    let range = Range {
        min: u64::from(max > 0),
        max,
    };
    range.factor(TEXT)
}

fn matching(text: Range, pattern: Range) -> Range {
    // An empty text is not for nothing.
    text.plus(ONE).factor(TEXT).times(pattern.factor(PATTERN))
}

/// What Kubernetes and the extensions of the language add.
fn extension(estimate: &Estimate<'_>, call: &Called<'_, '_>) -> Option<Price> {
    let first = || call.arguments.first();
    let text = |part: &Part<'_>| Price::of(size(estimate, part).factor(TEXT));
    Some(match (call.name, call.target, call.arguments) {
        ("check", ..) => Price::of(Range::fixed(AUTHORIZER_CHECK)),
        ("fieldSelector" | "labelSelector", _, [selector]) => {
            let length = size(estimate, selector);
            let requirements = length.factor(0.5).factor(50.0);
            Price::of(Range::fixed(LIST).plus(length.factor(TEXT)).plus(requirements))
        }
        ("isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf", Some(of), _) => {
            let length = size(estimate, of);
            let Some((item, ty)) = items(estimate, of) else {
                return Some(Price::of(length.factor(TEXT)));
            };
            let each = if matches!(ty, Ty::String | Ty::Bytes) {
                ONE.plus(item.factor(TEXT))
            } else {
                ONE
            };
            Price::of(length.times(each))
        }
        ("url" | "jsonpatch.escapeKey", _, [of])
        | ("lowerAscii" | "upperAscii" | "substring" | "trim", Some(of), _) => {
            let size = size(estimate, of);
            Price::with(size.factor(TEXT), size)
        }
        ("replace", Some(of), [what, with, ..]) => {
            replacing(size(estimate, of), size(estimate, what), size(estimate, with))
        }
        ("split", Some(of), arguments) => {
            let size = size(estimate, of);
            let at_most = match arguments.get(1).map(|limit| limit.expr) {
                #[expect(clippy::cast_sign_loss, reason = "it is there, too: no limit is a large one")]
                Some(Expr::Literal(LiteralValue::Int(limit))) => *limit.inner() as u64,
                _ => size.max,
            };
            let parts = Range { min: 0, max: at_most };
            Price::with(size.factor(2.0 * TEXT), parts)
        }
        ("join", Some(of), arguments) => {
            let length = size(estimate, of);
            let mut whole = items(estimate, of).map_or(Range::fixed(0), |(item, _)| length.times(item));
            if let Some(separator) = arguments.first() {
                let separators = Range {
                    min: length.min.saturating_sub(1),
                    max: length.max.saturating_sub(1),
                };
                whole = whole.plus(size(estimate, separator).times(separators));
            }
            Price::with(whole.factor(TEXT), whole)
        }
        ("find" | "findAll", Some(of), [pattern, ..]) => {
            let length = size(estimate, of);
            let found = Range {
                min: 0,
                max: length.max,
            };
            Price::with(matching(length, size(estimate, pattern)), found)
        }
        ("ip", Some(_), _) => Price::of(ONE),
        ("cidr" | "isIP" | "isCIDR" | "ip" | "quantity" | "isQuantity" | "semver" | "isSemver", ..) => {
            text(first()?)
        }
        ("ip.isCanonical", ..) => Price::of(size(estimate, first()?).factor(2.0 * TEXT)),
        ("containsIP" | "containsCIDR", ..) => {
            let bytes = Range { min: 4, max: 16 };
            let mut cost = bytes.plus(bytes).factor(TEXT);
            if call.name == "containsCIDR" {
                cost = cost.plus(bytes.factor(TEXT)).plus(ONE);
            }
            let other = first()?;
            if other.ty.fits(&Ty::String) {
                cost = cost.plus(text(other).cost);
            }
            Price::of(cost)
        }
        ("validate", ..) => Price::of(text(first()?).cost.factor(FORMAT_PATTERN * PATTERN)),
        (operators::EQUALS, None, [a, b]) if a.ty == b.ty => match a.ty {
            Ty::Named("kubernetes.NamedFormat") => Price::of(Range { min: 1, max: 64 }.factor(TEXT)),
            Ty::Named("kubernetes.URL") => Price::of(
                Range {
                    min: 1,
                    max: b.size.map_or(1, |size| size.max),
                }
                .factor(TEXT),
            ),
            Ty::Named(_) if a.ty != Ty::TYPE => Price::of(ONE),
            _ => return None,
        },
        ("sets.contains" | "sets.intersects" | "sets.equivalent", None, [a, b]) => {
            let factor = if call.name == "sets.equivalent" { 2.0 } else { 1.0 };
            let product = size(estimate, a).times(size(estimate, b));
            Price::of(product.factor(factor).plus(ONE))
        }
        ("slice", Some(of), [from, to]) => {
            let start = number(from).unwrap_or(0);
            let end = number(to).unwrap_or(size(estimate, of).max);
            making(1.0, Range::fixed(end.wrapping_sub(start)))
        }
        ("lists.range", None, [to]) => making(1.0, Range::fixed(number(to).unwrap_or(u64::MAX))),
        ("reverse" | "flatten", Some(of), []) => making(1.0, size(estimate, of)),
        ("flatten", Some(of), [depth]) => {
            #[expect(clippy::cast_precision_loss, reason = "it is reckoned so there, too")]
            let depth = number(depth).unwrap_or(u64::MAX) as f64;
            making(depth, size(estimate, of))
        }
        ("distinct", Some(of), []) => {
            let length = size(estimate, of);
            making(2.0, length.times(length))
        }
        ("sort", Some(of), []) => sorting(size(estimate, of), of),
        ("@sortByAssociatedKeys", Some(_), [keys]) => sorting(size(estimate, keys), keys),
        _ => return None,
    })
}

fn sorting(length: Range, list: &Part<'_>) -> Price {
    let texts = matches!(&list.ty, Ty::List(of) if matches!(**of, Ty::String | Ty::Bytes));
    making(if texts { 2.0 + TEXT } else { 2.0 }, length.times(length))
}

/// A list that is made.
fn making(factor: f64, length: Range) -> Price {
    let cost = length.factor(factor).plus(ONE).plus(Range::fixed(LIST));
    Price::with(cost, length)
}

fn number(part: &Part<'_>) -> Option<u64> {
    match part.expr {
        Expr::Literal(LiteralValue::Int(number)) => Some(u64::try_from(*number.inner()).unwrap_or(0)),
        _ => None,
    }
}

/// The size of a part, by itself or by the schema.
fn size(estimate: &Estimate<'_>, part: &Part<'_>) -> Range {
    let of_schema = || estimate.of_path(&part.path).filter(|_| !made_here(part));
    part.size.or_else(of_schema).unwrap_or(Range::UNKNOWN)
}

/// What a loop gathers has no place in the schema.
fn made_here(part: &Part<'_>) -> bool {
    part.path.first().is_some_and(|name| name == "@result")
}

/// The size and type of the items of a list; nothing if it is none.
fn items<'p>(estimate: &Estimate<'_>, list: &'p Part<'_>) -> Option<(Range, &'p Ty)> {
    let Ty::List(of) = &list.ty else { return None };
    let mut path = list.path.clone();
    let size = if path.is_empty() || made_here(list) {
        None
    } else {
        path.push("@items".to_owned());
        estimate.of_path(&path)
    };
    Some((size.unwrap_or(Range::UNKNOWN), of))
}

/// What replacing parts of a text costs, and how long it makes the text.
fn replacing(text: Range, what: Range, with: Range) -> Price {
    let nothing = Range::fixed(0);
    let (mut count, mut kept) = (nothing, nothing);
    if what.min == 0 {
        // Nothing is found between all characters.
        count.max = text.max.saturating_add(1);
        kept.max = text.max;
    } else if with.max <= what.min {
        kept.max = text.max;
    } else {
        count.max = text.max.div_ceil(what.min);
    }
    if what.max == 0 {
        count.min = text.min.saturating_add(1);
        kept.min = text.min;
    } else if what.max <= with.min {
        kept.min = text.min;
    } else {
        count.min = text.min.div_ceil(what.max);
    }
    Price::with(text.factor(2.0 * TEXT), count.times(with).plus(kept))
}
