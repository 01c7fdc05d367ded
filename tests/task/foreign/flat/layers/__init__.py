from .unit import unit as unit
