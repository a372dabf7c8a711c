"""Re-tuning: a declared space of parameters, pruned by what is legal and by the cost model, measured best-first under a budget."""
from kir.learning.tune.apply import tuned_program, tuned_text, tuned_values
from kir.learning.tune.rank import Candidate, Pruned, general, ranked
from kir.learning.tune.results import Tuned, save, stored
from kir.learning.tune.search import Measured, Measurer, Outcome, search
from kir.learning.tune.space import Space, load_space

__all__ = ["Candidate", "Measured", "Measurer", "Outcome", "Pruned", "Space", "Tuned", "general", "load_space", "ranked", "save", "search", "stored",
           "tuned_program", "tuned_text", "tuned_values"]
