from glus.ops.glu import GluFunction as GluFunction
