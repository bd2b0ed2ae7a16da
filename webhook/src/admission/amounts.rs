//! The CPU and memory that a drainer can have.

use std::ops::Deref;

use super::quantity::Quantity;

/// Requests and limits of a container, whatever they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceAmounts {
    /// `cpu-request`.
    pub cpu_request: Quantity,
    /// `memory-request`.
    pub memory_request: Quantity,
    /// `cpu-limit`.
    pub cpu_limit: Quantity,
    /// `memory-limit`.
    pub memory_limit: Quantity,
}

/// [`Amounts`] with which a drainer can start: more than nothing, no request above its limit, and
/// memory enough for the container runtime.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DrainerResources(ResourceAmounts);

/// Why amounts are no [`Resources`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidResources {
    /// One of them cannot be, whatever the others are.
    #[error("{name}: {error}")]
    Amount {
        /// Which one.
        name: &'static str,
        /// Why.
        error: InvalidAmount,
    },
    /// Two of them do not fit together.
    #[error(transparent)]
    Request(#[from] RequestAboveLimit),
}

/// Why an amount cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidAmount {
    /// It is nothing, or less.
    #[error("invalid quantity `{0}`: more than 0")]
    NotPositive(Quantity),
    /// No container could start with so little memory.
    #[error("invalid limit `{0}`: at least 24Mi, which the container runtime itself needs")]
    MemoryTooLow(Quantity),
}

/// A request that is more than its limit, which Kubernetes refuses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{resource}-request {request}{} is more than {resource}-limit {limit}{}: lower the one or raise the other",
    default_suffix(&format!("{resource}-request"), request),
    default_suffix(&format!("{resource}-limit"), limit)
)]
pub struct RequestAboveLimit {
    resource: &'static str,
    request: Quantity,
    limit: Quantity,
}

/// In bytes: 24Mi, which the container runtime itself needs to start a hook.
const MIN_MEMORY: u64 = 24 << 20;

/// Says so if an amount is the product's own: who did not give it may not know of it.
fn default_suffix(name: &str, amount: &Quantity) -> &'static str {
    let product = DrainerResources::default();
    let default = match name {
        "cpu-request" => &product.cpu_request,
        "cpu-limit" => &product.cpu_limit,
        "memory-request" => &product.memory_request,
        _ => &product.memory_limit,
    };
    match amount == default {
        true => " (default)",
        false => "",
    }
}

/// Returns an amount above zero.
pub(super) fn check_positive(amount: Quantity) -> Result<Quantity, InvalidAmount> {
    match amount.is_positive() {
        true => Ok(amount),
        false => Err(InvalidAmount::NotPositive(amount)),
    }
}

/// Returns a limit of memory with which the drainer can start.
pub(super) fn check_memory_limit(limit: Quantity) -> Result<Quantity, InvalidAmount> {
    match check_positive(limit)? {
        limit if limit.is_at_least(MIN_MEMORY) => Ok(limit),
        limit => Err(InvalidAmount::MemoryTooLow(limit)),
    }
}

/// Refuses a request above its limit.
pub(super) fn check_limit(
    resource: &'static str,
    request: &Quantity,
    limit: &Quantity,
) -> Result<(), RequestAboveLimit> {
    if request <= limit {
        return Ok(());
    }
    Err(RequestAboveLimit {
        resource,
        request: request.clone(),
        limit: limit.clone(),
    })
}

// === impl DrainerResources ===

impl DrainerResources {
    /// The amounts, which must fit together.
    ///
    /// # Errors
    /// With every reason why a drainer cannot have them: at least one.
    pub fn try_new(amounts: ResourceAmounts) -> Result<Self, Vec<InvalidResources>> {
        let ResourceAmounts {
            cpu_request,
            memory_request,
            cpu_limit,
            memory_limit: most_memory,
        } = amounts.clone();
        let fits = [
            check_limit("cpu", &cpu_request, &cpu_limit),
            check_limit("memory", &memory_request, &most_memory),
        ];
        let single = [
            ("cpu-request", check_positive(cpu_request)),
            ("cpu-limit", check_positive(cpu_limit)),
            ("memory-request", check_positive(memory_request)),
            ("memory-limit", check_memory_limit(most_memory)),
        ];
        let invalid = single.into_iter().filter_map(|(name, amount)| {
            let error = amount.err()?;
            Some(InvalidResources::Amount { name, error })
        });
        let misfits = fits.into_iter().filter_map(Result::err).map(Into::into);
        let reasons: Vec<_> = invalid.chain(misfits).collect();
        if reasons.is_empty() {
            Ok(Self(amounts))
        } else {
            Err(reasons)
        }
    }
}

impl Default for DrainerResources {
    fn default() -> Self {
        let quantity = |text: &str| text.parse().expect("a constant that a test has parsed");
        Self(ResourceAmounts {
            cpu_request: quantity("25m"),
            memory_request: quantity("16Mi"),
            cpu_limit: quantity("100m"),
            memory_limit: quantity("64Mi"),
        })
    }
}

impl Deref for DrainerResources {
    type Target = ResourceAmounts;

    fn deref(&self) -> &ResourceAmounts {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The reasons against `[cpu-request, cpu-limit, memory-request, memory-limit]`.
    fn reasons(amounts: [&str; 4]) -> Vec<String> {
        let [cpu_request, cpu_limit, memory_request, memory_limit] =
            amounts.map(|text| text.parse().unwrap());
        let tried = DrainerResources::try_new(ResourceAmounts {
            cpu_request,
            memory_request,
            cpu_limit,
            memory_limit,
        });
        let reasons = tried.err().into_iter().flatten();
        reasons.map(|reason| reason.to_string()).collect()
    }

    #[test]
    fn the_products_own_are_valid() {
        let product = DrainerResources::default();
        assert_eq!(DrainerResources::try_new((*product).clone()), Ok(product));
    }

    #[test]
    fn what_a_drainer_can_start_with_is_taken() {
        for amounts in [
            ["25m", "100m", "16Mi", "64Mi"],
            ["1", "1000m", "24Mi", "24Mi"],
            ["1n", "1", "1", "25165824"],
        ] {
            assert_eq!(reasons(amounts), [""; 0], "{amounts:?}");
        }
    }

    #[test]
    fn everything_that_a_drainer_cannot_start_with_is_told() {
        let table: [([&str; 4], &[&str]); 6] = [
            (
                ["0", "100m", "16Mi", "64Mi"],
                &["cpu-request: invalid quantity `0`: more than 0"],
            ),
            (
                ["25m", "100m", "-1Mi", "64Mi"],
                &["memory-request: invalid quantity `-1Mi`: more than 0"],
            ),
            (
                ["25m", "100m", "16Mi", "25165823"],
                &[
                    "memory-limit: invalid limit `25165823`: at least 24Mi, which the container runtime itself needs",
                ],
            ),
            (
                ["101m", "100m", "16Mi", "64Mi"],
                &[
                    "cpu-request 101m is more than cpu-limit 100m (default): lower the one or raise the other",
                ],
            ),
            (
                ["25m", "100m", "1Gi", "64Mi"],
                &[
                    "memory-request 1Gi is more than memory-limit 64Mi (default): lower the one or raise the other",
                ],
            ),
            (
                ["25m", "0", "128Mi", "16Mi"],
                &[
                    "cpu-limit: invalid quantity `0`: more than 0",
                    "memory-limit: invalid limit `16Mi`: at least 24Mi, which the container runtime itself needs",
                    "cpu-request 25m (default) is more than cpu-limit 0: lower the one or raise the other",
                    "memory-request 128Mi is more than memory-limit 16Mi: lower the one or raise the other",
                ],
            ),
        ];
        for (amounts, want) in table {
            assert_eq!(reasons(amounts), want, "{amounts:?}");
        }
    }
}
