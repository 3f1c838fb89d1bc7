//! How an instance of AWS is bought: on demand, from the spot market or from a reservation.

use std::sync::LazyLock;

use regex::Regex;

use super::spec::AwsSpec;
use crate::webhooks::field::FieldError;
use crate::webhooks::verdict::Verdict;

const RESERVATION: &str = "providerSpec.capacityReservationId";
const MARKET_TYPE: &str = "providerSpec.marketType";
const SPOT_OPTIONS: &str = "providerSpec.spotMarketOptions";

static RESERVATION_ID: LazyLock<Regex> =
    LazyLock::new(|| Regex::new("^cr-[0-9a-f]{17}$").expect("a valid expression"));

pub(super) fn validate(spec: &AwsSpec, verdict: &mut Verdict) {
    let reservation = spec.capacity_reservation_id.as_str();
    let (has_reservation, has_spot) = (!reservation.is_empty(), spec.spot_market_options.is_some());
    verdict.require(!has_reservation || RESERVATION_ID.is_match(reservation), || {
        let detail = "must be cr- followed by 17 lowercase hexadecimal digits";
        FieldError::invalid(RESERVATION, reservation, detail)
    });
    let no_spot_options = |market: &str| {
        let detail = format!("spotMarketOptions may not be set when marketType is {market}");
        FieldError::forbidden(SPOT_OPTIONS, detail)
    };
    match spec.market_type.as_str() {
        "" => verdict.require(!(has_reservation && has_spot), || {
            let detail = "spotMarketOptions may not be set together with capacityReservationId";
            FieldError::forbidden(SPOT_OPTIONS, detail)
        }),
        "OnDemand" => verdict.require(!has_spot, || no_spot_options("OnDemand")),
        "Spot" => verdict.require(!has_reservation, || {
            let detail = "capacityReservationId may not be set when marketType is Spot";
            FieldError::forbidden(RESERVATION, detail)
        }),
        "CapacityBlock" => {
            verdict.require(has_reservation, || {
                let detail = "capacityReservationId must be provided when marketType is CapacityBlock";
                FieldError::required(RESERVATION, detail)
            });
            verdict.require(!has_spot, || no_spot_options("CapacityBlock"));
        }
        other => verdict.error(FieldError::invalid(
            MARKET_TYPE,
            other,
            "Valid values are: OnDemand, Spot, CapacityBlock and omitted",
        )),
    }
}
