from glus.ops import GluFunction as GluFunction
