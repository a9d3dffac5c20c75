package pyfunc

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"io"
)

// csvColumn reads a table of one column below a line with its name.
func csvColumn(body []byte) ([][]byte, error) {
	broken := func(why string) error {
		return failure{Message: "Failed to parse input as a Pandas DataFrame. Ensure that the input is a valid CSV-formatted" +
			" Pandas DataFrame produced using the `pandas.DataFrame.to_csv()` method. Error: '" + why + "'"}
	}
	in := csv.NewReader(bytes.NewReader(bytes.TrimPrefix(body, []byte("\ufeff"))))
	in.FieldsPerRecord = -1
	head, err := in.Read()
	switch {
	case err == io.EOF:
		return nil, broken("No columns to parse from file")
	case err != nil:
		return nil, broken(err.Error())
	case len(head) != 1:
		return nil, unexpected(errNotOne(len(head)).Error() + ": write it without its index")
	}
	var items [][]byte
	for {
		row, err := in.Read()
		switch {
		case err == io.EOF:
			return items, nil
		case err != nil:
			return nil, broken(err.Error())
		case len(row) != 1:
			line, _ := in.FieldPos(0)
			return nil, broken(fmt.Sprintf("Expected 1 fields in line %d, saw %d", line, len(row)))
		}
		items = append(items, []byte(row[0]))
	}
}
