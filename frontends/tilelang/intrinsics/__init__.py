"""TileLang's own vocabulary: `T.copy`, `T.gemm`, `T.reduce`, and the rest."""
