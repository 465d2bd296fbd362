//! What functions take and give, for those whose arguments are checked.
//!
//! A signature is short text: types before `>` are taken, the one after it is given; what a function is called on comes
//! before a dot. `s` string, `i` int, `u` uint, `d` double, `b` bool, `y` bytes, `D` duration, `T` timestamp, `[x]` a list,
//! `{x}` a map of texts, `Ox` an optional, `*` anything, `-` what is not decided, `A` the same anything wherever it stands; `Q` quantity, `U` URL,
//! `P` IP, `C` CIDR, `V` semantic version, `F` format, `N` type; `Z` authorizer and its checks, of a path `H`, a group `G`, a
//! resource `R`, and the decision `X`.

use std::iter::Peekable;
use std::str::Chars;

use super::types::Ty;

/// The type of `authorizer`.
pub(crate) const AUTHORIZER: Ty = Ty::Named("kubernetes.authorization.Authorizer");
/// The type of a question about a resource.
pub(super) const RESOURCE_CHECK: Ty = Ty::Named("kubernetes.authorization.ResourceCheck");

const TEXT_TEST: &[&str] = &["s.s>b"];
const TEXT_CHANGE: &[&str] = &["s.>s"];
const IS: &[&str] = &["s>b"];
const OF_TIME: &[&str] = &["T.>i", "T.s>i"];
const OF_TIME_OR_DURATION: &[&str] = &["T.>i", "T.s>i", "D.>i"];
const EXTREME: &[&str] = &[
    "[i].>i", "[u].>u", "[d].>d", "[b].>b", "[D].>D", "[T].>T", "[s].>s", "[y].>y",
];
const FIND_IN: &[&str] = &["s.s>i", "s.si>i", "[A].A>i"];
const OF_URL: &[&str] = &["U.>s"];
const SUM_OF_QUANTITIES: &[&str] = &["Q.Q>Q", "Q.i>Q"];
const COMPARE: &[&str] = &["Q.Q>b", "V.V>b"];
const OF_IP: &[&str] = &["P.>b"];
const OF_VERSION: &[&str] = &["V.>i"];
const OF_SETS: &[&str] = &["[A][A]>b"];

/// All signatures of a function; nothing if there is no such function.
fn signatures(name: &str) -> Option<&'static [&'static str]> {
    Some(match name {
        "contains" | "startsWith" | "endsWith" => TEXT_TEST,
        "matches" => &["s.s>b", "ss>b"],
        "size" => &["s>i", "y>i", "[*]>i", "{*}>i", "s.>i", "y.>i", "[*].>i", "{*}.>i"],
        "charAt" => &["s.i>s"],
        "lowerAscii" | "upperAscii" | "trim" => TEXT_CHANGE,
        "replace" => &["s.ss>s", "s.ssi>s"],
        "split" | "findAll" => &["s.s>[s]", "s.si>[s]"],
        "substring" => &["s.i>s", "s.ii>s"],
        "join" => &["[s].>s", "[s].s>s"],
        "indexOf" | "lastIndexOf" => FIND_IN,
        "find" => &["s.s>s"],
        "strings.quote" => &["s>s"],
        "isSorted" => &[
            "[i].>b", "[u].>b", "[d].>b", "[b].>b", "[D].>b", "[T].>b", "[s].>b", "[y].>b",
        ],
        "sum" => &["[i].>i", "[u].>u", "[d].>d", "[D].>D"],
        "min" | "max" => EXTREME,
        "int" => &["i>i", "u>i", "d>i", "s>i", "T>i", "D>i"],
        "uint" => &["u>u", "i>u", "d>u", "s>u"],
        "double" => &["d>d", "i>d", "u>d", "s>d"],
        "string" => &[
            "s>s", "b>s", "y>s", "i>s", "u>s", "d>s", "D>s", "T>s", "P>s", "C>s",
        ],
        "bytes" => &["y>y", "s>y"],
        "bool" => &["b>b", "s>b"],
        "duration" => &["D>D", "s>D"],
        "timestamp" => &["T>T", "s>T", "i>T"],
        "dyn" => &["*>*"],
        "type" => &["*>N"],
        "format" => &["s.[*]>s"],
        "getFullYear" | "getMonth" | "getDate" | "getDayOfMonth" | "getDayOfWeek" | "getDayOfYear" => OF_TIME,
        "getHours" | "getMinutes" | "getSeconds" | "getMilliseconds" => OF_TIME_OR_DURATION,
        "url" => &["s>U"],
        "isURL" | "isQuantity" | "isIP" | "isCIDR" | "ip.isCanonical" => IS,
        "getScheme" | "getHost" | "getHostname" | "getPort" | "getEscapedPath" => OF_URL,
        "getQuery" => &["U.>{[s]}"],
        "quantity" => &["s>Q"],
        "sign" => &["Q>i"],
        "asInteger" => &["Q.>i"],
        "isInteger" => &["Q.>b"],
        "asApproximateFloat" => &["Q.>d"],
        "add" | "sub" => SUM_OF_QUANTITIES,
        "isGreaterThan" | "isLessThan" => COMPARE,
        "compareTo" => &["Q.Q>i", "V.V>i"],
        "ip" => &["s>P", "C.>P"],
        "family" => &["P.>i"],
        "isUnspecified"
        | "isLoopback"
        | "isLinkLocalMulticast"
        | "isLinkLocalUnicast"
        | "isGlobalUnicast" => OF_IP,
        "cidr" => &["s>C"],
        "containsIP" => &["C.s>b", "C.P>b"],
        "containsCIDR" => &["C.s>b", "C.C>b"],
        "masked" => &["C.>C"],
        "prefixLength" => &["C.>i"],
        "semver" => &["s>V", "sb>V"],
        "isSemver" => &["s>b", "sb>b"],
        "major" | "minor" | "patch" => OF_VERSION,
        "sets.contains" | "sets.equivalent" | "sets.intersects" => OF_SETS,
        "format.named" => &["s>OF"],
        "format.dns1123Label"
        | "format.dns1123Subdomain"
        | "format.dns1035Label"
        | "format.qualifiedName"
        | "format.dns1123LabelPrefix"
        | "format.dns1123SubdomainPrefix"
        | "format.dns1035LabelPrefix"
        | "format.labelValue"
        | "format.uri"
        | "format.uuid"
        | "format.byte"
        | "format.date"
        | "format.datetime" => &[">F"],
        "validate" => &["F.s>O[s]"],
        "first" | "last" => &["[A].>OA"],
        "slice" => &["[A].ii>[A]"],
        "flatten" => &["[[A]].>[A]", "[*].i>[*]"],
        "reverse" | "distinct" => &["[A].>[A]"],
        "sort" => &[
            "[i].>[i]", "[u].>[u]", "[d].>[d]", "[b].>[b]", "[D].>[D]", "[T].>[T]", "[s].>[s]", "[y].>[y]",
        ],
        "lists.range" => &["i>[i]"],
        "unwrapOpt" => &["[OA].>[A]"],
        "optional.unwrap" => &["[OA]>[A]"],
        "path" => &["Z.s>H"],
        "group" => &["Z.s>G"],
        "serviceAccount" => &["Z.ss>Z"],
        "resource" => &["G.s>R"],
        "subresource" | "namespace" | "name" | "fieldSelector" | "labelSelector" => &["R.s>R"],
        "check" => &["H.s>X", "R.s>X"],
        "allowed" | "errored" => &["X.>b"],
        "reason" | "error" => &["X.>s"],
        "optional.of" | "optional.ofNonZeroValue" => &["A>OA"],
        "optional.none" => &[">O-"],
        "hasValue" => &["O*.>b"],
        "value" => &["OA.>A"],
        "orValue" => &["OA.A>A"],
        "or" => &["OA.OA>OA"],
        _ => return None,
    })
}

/// Whether there is a function of this name.
pub(super) fn known(name: &str) -> bool {
    signatures(name).is_some()
}

/// The type that a call gives: nothing if there is no such function, an error if none of its signatures takes these.
pub(super) fn result(name: &str, target: Option<&Ty>, arguments: &[Ty]) -> Option<Result<Ty, ()>> {
    let mut found = signatures(name)?
        .iter()
        .filter_map(|signature| apply(signature, target, arguments));
    // What may be anything may fit several, which need not agree.
    let first = found.next();
    Some(match first {
        Some(first) if found.all(|other| other == first) => Ok(first),
        Some(_) => Ok(Ty::Dyn),
        None => Err(()),
    })
}

fn apply(signature: &str, target: Option<&Ty>, arguments: &[Ty]) -> Option<Ty> {
    let (takes, gives) = signature.split_once('>')?;
    let takes = match (takes.split_once('.'), target) {
        (Some((on, takes)), Some(_)) => [on, takes].concat(),
        (None, None) => takes.to_owned(),
        _ => return None,
    };
    let mut wanted = takes.chars().peekable();
    let mut variable = None;
    for ty in target.into_iter().chain(arguments) {
        wanted.peek()?;
        if !part(&mut wanted).takes(ty, &mut variable) {
            return None;
        }
    }
    if wanted.peek().is_some() {
        return None;
    }
    Some(part(&mut gives.chars().peekable()).with(variable.as_ref()))
}

/// One type of a signature.
enum Part {
    Is(Ty),
    List(Box<Self>),
    Map(Box<Self>),
    Optional(Box<Self>),
    Variable,
}

fn part(text: &mut Peekable<Chars<'_>>) -> Part {
    let ty = match text.next() {
        Some('s') => Ty::String,
        Some('i') => Ty::Int,
        Some('u') => Ty::Uint,
        Some('d') => Ty::Double,
        Some('b') => Ty::Bool,
        Some('y') => Ty::Bytes,
        Some('D') => Ty::Duration,
        Some('T') => Ty::Timestamp,
        Some('Q') => Ty::Named("kubernetes.Quantity"),
        Some('U') => Ty::Named("kubernetes.URL"),
        Some('P') => Ty::Named("net.IP"),
        Some('C') => Ty::Named("net.CIDR"),
        Some('V') => Ty::Named("kubernetes.Semver"),
        Some('F') => Ty::Named("kubernetes.NamedFormat"),
        Some('-') => Ty::Free,
        Some('N') => Ty::TYPE,
        Some('Z') => AUTHORIZER,
        Some('H') => Ty::Named("kubernetes.authorization.PathCheck"),
        Some('G') => Ty::Named("kubernetes.authorization.GroupCheck"),
        Some('R') => RESOURCE_CHECK,
        Some('X') => Ty::Named("kubernetes.authorization.Decision"),
        Some('A') => return Part::Variable,
        Some('O') => return Part::Optional(Box::new(part(text))),
        Some(open @ ('[' | '{')) => {
            let inside = Box::new(part(text));
            text.next();
            return if open == '[' {
                Part::List(inside)
            } else {
                Part::Map(inside)
            };
        }
        _ => Ty::Dyn,
    };
    Part::Is(ty)
}

impl Part {
    fn takes(&self, ty: &Ty, variable: &mut Option<Ty>) -> bool {
        match (self, ty) {
            // The most general of all.
            (Self::Variable, Ty::Dyn) => {
                *variable = Some(Ty::Dyn);
                true
            }
            (_, Ty::Dyn | Ty::Free) | (Self::Optional(_), Ty::Null) | (Self::Map(_), Ty::Keyed(..)) => true,
            (Self::List(inside), Ty::List(of))
            | (Self::Map(inside), Ty::Map(of))
            | (Self::Optional(inside), Ty::Optional(of)) => inside.takes(of, variable),
            (Self::Is(wanted), ty) => ty.fits(wanted),
            (Self::Variable, ty) => {
                let bound = variable.get_or_insert_with(|| ty.clone());
                let fits = bound.fits(ty);
                if let Some(same) = bound.same(ty) {
                    *bound = same;
                }
                fits
            }
            _ => false,
        }
    }

    fn with(&self, variable: Option<&Ty>) -> Ty {
        match self {
            Self::Is(ty) => ty.clone(),
            Self::Variable => variable.cloned().unwrap_or(Ty::Dyn).decided(),
            Self::List(inside) => Ty::list(inside.with(variable)),
            Self::Map(inside) => Ty::map(inside.with(variable)),
            Self::Optional(inside) => Ty::Optional(Box::new(inside.with(variable))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_take_and_give() {
        let list = || Ty::list(Ty::String);
        let of = |name, target: Option<&Ty>, arguments: &[Ty]| result(name, target, arguments).unwrap();
        assert_eq!(of("join", Some(&list()), &[]), Ok(Ty::String));
        assert_eq!(of("join", Some(&Ty::list(Ty::Int)), &[]), Err(()));
        assert_eq!(of("indexOf", Some(&list()), &[Ty::Int]), Err(()));
        assert_eq!(of("indexOf", Some(&Ty::list(Ty::Int)), &[Ty::Int]), Ok(Ty::Int));
        assert_eq!(of("contains", Some(&Ty::String), &[Ty::Dyn]), Ok(Ty::Bool));
        assert_eq!(of("contains", None, &[Ty::String, Ty::String]), Err(()));
        let optional = of("optional.of", None, &[Ty::Int]).unwrap();
        assert_eq!(of("orValue", Some(&optional), &[Ty::Int]), Ok(Ty::Int));
        assert_eq!(of("orValue", Some(&optional), &[Ty::String]), Err(()));
        assert!(result("nothing", None, &[]).is_none());
    }

    /// How many values a signature takes, besides what it is called on.
    fn taken(signature: &str) -> (bool, usize) {
        let (takes, _) = signature.split_once('>').unwrap();
        let (on, takes) = takes
            .split_once('.')
            .map_or((false, takes), |(_, takes)| (true, takes));
        let mut takes = takes.chars().peekable();
        let mut count = 0;
        while takes.peek().is_some() {
            part(&mut takes);
            count += 1;
        }
        (on, count)
    }

    /// What is accepted when it is written must be there when it is evaluated.
    #[test]
    fn every_function_can_be_called() {
        let source = include_str!("signatures.rs");
        let names: Vec<&str> = source.split('"').filter(|name| known(name)).collect();
        assert!(names.len() > 90, "{}", names.len());
        let mut missing = Vec::new();
        for name in names {
            for signature in signatures(name).unwrap() {
                let (on, count) = taken(signature);
                let arguments = vec!["null"; count].join(", ");
                let call = if on {
                    format!("dyn(null).{name}({arguments})")
                } else {
                    format!("{name}({arguments})")
                };
                let found = super::super::Expression::compile(&call)
                    .unwrap()
                    .evaluate(&super::super::Activation::default());
                if found.is_err_and(|why| why.contains("undeclared")) {
                    missing.push(call);
                }
            }
        }
        assert!(missing.is_empty(), "{missing:#?}");
    }
}
