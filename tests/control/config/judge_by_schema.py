# SPDX-License-Identifier: Apache-2.0
"""judge_by_schema.py SCHEMA DOCUMENTS: each line of DOCUMENTS is "valid JSON" or "wrong JSON".

Prints the first documents on which the schema disagrees, and exits with 1 if there are any.
"""

import json
import sys

import jsonschema


def main(schema_file: str, documents_file: str) -> int:
    with open(schema_file, encoding="utf-8") as file:
        schema = json.load(file)
    jsonschema.Draft7Validator.check_schema(schema)
    validator = jsonschema.Draft7Validator(schema)
    judged = 0
    differ = 0
    with open(documents_file, encoding="utf-8") as file:
        for line in file:
            verdict, text = line.rstrip("\n").split(" ", 1)
            document = json.loads(text)
            judged += 1
            if validator.is_valid(document) == (verdict == "valid"):
                continue
            differ += 1
            if differ <= 10:
                errors = [
                    f"{list(error.path)}: {error.message[:200]}" for error in validator.iter_errors(document)
                ]
                print(f"our validation: {verdict}: {text[:400]}\n  schema: {errors[:3]}")
    print(f"{judged} judged alike" if differ == 0 else f"{differ} of {judged} judged otherwise")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
