use super::Quantity;

#[test]
fn one_form() {
    for (given, written) in [
        ("0.5", "500m"),
        ("1000m", "1"),
        ("1500m", "1500m"),
        ("1024Mi", "1Gi"),
        ("1.5Gi", "1536Mi"),
        ("0.5Gi", "512Mi"),
        ("100Mi", "100Mi"),
        ("1000Ki", "1000Ki"),
        ("1e3", "1e3"),
        ("10e2", "1e3"),
        ("12000", "12k"),
        ("10", "10"),
        ("-0.5", "-500m"),
        ("0", "0"),
        ("0.0000000001", "1n"),
        ("99999999999999999999", "99999999999999999999"),
        ("1e20", "100e18"),
        ("16Ei", "9223372036854775807"),
        ("1e400", "10e399"),
        // There is no suffix for that, so the real server writes none.
        ("1000E", "1"),
        ("Mi", "0"),
        (".", "0"),
        ("1Ki", "1Ki"),
        ("0.5Ki", "512"),
        ("+1", "1"),
        (".5", "500m"),
        ("5.", "5"),
    ] {
        assert_eq!(
            Quantity::parse(given).map(|q| q.to_string()).as_deref(),
            Some(written),
            "{given}"
        );
    }
}

#[test]
fn not_one() {
    for given in ["", "x", "1x", "1.2.3", "1 ", "Ei", "1mi", "1e", "--1", "1e3k"] {
        assert!(Quantity::parse(given).is_none(), "{given}");
    }
}

proptest::proptest! {
    #[test]
    fn any_text(text in "[+-]?[0-9.]{0,40}[eEinumkKMGTP]{0,3}[-+]?[0-9]{0,20}") {
        let limit = Quantity::parse("1000E").unwrap();
        let within = |q: &Quantity| *q < limit && Quantity::ZERO.minus(*q) < limit;
        if let Some(q) = Quantity::parse(&text).filter(within) {
            let written = q.to_string();
            let again = Quantity::parse(&written);
            proptest::prop_assert_eq!(again, Some(q));
            proptest::prop_assert_eq!(again.map(|q| q.to_string()), Some(written));
        }
    }
}
