"""The fragmentation watch and forecasts, in Python: a program that leaks a little in each step."""

import genesis

warnings: list[float] = []
genesis.options.set("compact_above", 0.3)
genesis.on_forecast(lambda device, forecast: warnings.append(forecast.steps_left))
leaked = genesis.Arena("device")
for step in range(200):
    leaked.allocate("1MB")  # never reset
    genesis.trace.iteration(step)
print("warned:", "yes" if warnings else "no")
print(genesis.forecast(0))
print(genesis.memory_manager.optimize())
