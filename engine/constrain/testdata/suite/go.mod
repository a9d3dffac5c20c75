// The JSON Schema Test Suite, as a module brings it along. TestSuite fetches it; nothing is built from it.
module github.com/rouse-dev/rouse/engine/constrain/testdata/suite

go 1.26

require github.com/kaptinlin/jsonschema v0.9.6
