//! The one certificate request in a text. Approver and signer must read the same request, so a text that allows two readings is
//! refused.

use base64::{Engine as _, engine::general_purpose::STANDARD};

const BEGIN: &str = "-----BEGIN CERTIFICATE REQUEST-----";
const END: &str = "-----END CERTIFICATE REQUEST-----";

/// The DER of the request, if the text holds exactly one block and nothing else.
pub fn certificate_request(pem: &[u8]) -> Result<Vec<u8>, String> {
    let text = std::str::from_utf8(pem).map_err(|_| "it holds no PEM")?;
    let body = text
        .trim()
        .strip_prefix(BEGIN)
        .and_then(|rest| rest.strip_suffix(END))
        .ok_or("it is not one CERTIFICATE REQUEST in PEM")?;
    // Neither a second block nor headers: base64 and line ends allow one reading only.
    let body: String = body.chars().filter(|c| !matches!(c, '\r' | '\n')).collect();
    STANDARD
        .decode(&body)
        .map_err(|_| "it holds more than one CERTIFICATE REQUEST in PEM".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_with_two_readings_is_refused() {
        let good = format!("{BEGIN}\nTUlJ\n{END}\n");
        assert_eq!(certificate_request(good.as_bytes()).unwrap(), b"MII");
        for bad in [
            // Go skips a block whose end has another name, and reads the next one.
            format!("{BEGIN}\nTUlJ\n-----END X-----\n{good}"),
            format!("{good}{good}"),
            format!("{good}more"),
            format!("before\n{good}"),
            format!("{BEGIN}\nKey: value\n\nTUlJ\n{END}\n"),
            format!("{BEGIN}\nTUlJ\n-----END CERTIFICATE REQUEST-----x\n"),
            format!("{BEGIN}\nTU lJ\n{END}\n"),
            "-----BEGIN CERTIFICATE-----\nTUlJ\n-----END CERTIFICATE-----\n".to_owned(),
            String::new(),
        ] {
            assert!(certificate_request(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
