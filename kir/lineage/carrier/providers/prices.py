"""What tokens cost: the user's own price where the settings give one, else the maintained table of `genai-prices`; never a guess."""
from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

from kir.base.diagnostic import error
from kir.lineage.carrier.providers.settings import Endpoint

Pricer = Callable[[int, int], Decimal]
"""Dollars for so many tokens in and out."""
MILLION = Decimal(1_000_000)


def pricer(endpoint: Endpoint, protocol: str) -> Pricer:
    """The price of an endpoint's model. Raises KirError KIR-H202 when neither the settings nor the table knows it, so that nothing is
    spent uncounted; KIR-H301 when the table is needed and not installed."""
    if (own := endpoint.price) is not None:
        return lambda input, output: (own.input * input + own.output * output) / MILLION
    try:
        from genai_prices import Usage, calc_price
    except ImportError:
        raise error("KIR-H301", "the price table (genai-prices) is not installed", attempt="pip install 'kernel-lineage[llm]'",
                    needs="it, or a price in the settings") from None

    def priced(input: int, output: int) -> Decimal:
        used = Usage(input_tokens=input, output_tokens=output)
        if endpoint.endpoint:
            return Decimal(calc_price(used, endpoint.model, provider_api_url=endpoint.endpoint).total_price)
        return Decimal(calc_price(used, endpoint.model, provider_id=protocol).total_price)
    try:
        priced(1, 1)
    except LookupError:
        where = endpoint.endpoint or protocol
        raise error("KIR-H202", f"no price is known for the model '{endpoint.model}' at {where}", needs="its price, so that every call is counted",
                    attempt="price = { input = 0.0, output = 0.0 } in the settings, for a model that costs nothing") from None
    return priced
