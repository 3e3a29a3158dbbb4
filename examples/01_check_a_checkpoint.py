"""Check a checkpoint from Python and act on the result. Run: python examples/01_check_a_checkpoint.py [FOLDER]"""

import sys
from importlib.resources import files

from degarble import check

target = sys.argv[1] if len(sys.argv) > 1 else str(files("degarble.data") / "demo")
report = check(target)

print(f"{report.target.path}: {report.status} ({', '.join(report.target.formats)})")
for cause in report.causes:
    finding = cause.finding
    print(f"{finding.severity} {finding.rule} {finding.name} at {finding.location.name()}")
    print(f"  {finding.message}")
    for symptom in cause.symptoms:
        print(f"  explains {symptom.rule} at {symptom.location.name()}")

for what, reason in report.unjudged.items():
    print(f"not judged: {what}: {reason}")

sys.exit(report.exit_code())
