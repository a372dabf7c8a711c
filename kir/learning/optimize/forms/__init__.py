"""The forms that kernels are brought into before schedules are made for them."""
