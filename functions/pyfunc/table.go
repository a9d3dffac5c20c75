package pyfunc

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"io"
	"slices"
	"strings"
)

// csvColumn reads the column "prompt", or else the first, of a table below a line with the columns' names. Where the rows have more cells than there are
// names the first ones are the index, as pandas reads them.
func csvColumn(body []byte) ([][]byte, error) {
	broken := func(why string) error {
		return failure{Message: "Failed to parse input as a Pandas DataFrame. Ensure that the input is a valid CSV-formatted" +
			" Pandas DataFrame produced using the `pandas.DataFrame.to_csv()` method. Error: '" + why + "'"}
	}
	body = bytes.TrimPrefix(body, []byte("\ufeff"))
	if !bytes.Contains(body, []byte("\n")) {
		body = bytes.ReplaceAll(body, []byte("\r"), []byte("\n"))
	}
	in := csv.NewReader(bytes.NewReader(body))
	in.FieldsPerRecord = -1
	head, err := in.Read()
	switch {
	case err == io.EOF, err == nil && strings.TrimSpace(strings.Join(head, ",")) == "":
		return nil, broken("No columns to parse from file")
	case err != nil:
		return nil, broken(err.Error())
	}
	var items [][]byte
	width := 0 // of the first row
	column := max(0, slices.Index(head, namedColumn))
	for {
		row, err := in.Read()
		if err == io.EOF {
			return items, nil
		} else if err != nil {
			return nil, broken(err.Error())
		}
		if items == nil {
			width = max(len(row), len(head))
		}
		line, _ := in.FieldPos(0)
		switch at := width - len(head) + column; {
		case len(row) > width:
			return nil, broken(fmt.Sprintf("Expected %d fields in line %d, saw %d", width, line, len(row)))
		case len(row) <= at:
			return nil, unexpected(fmt.Sprintf("there is nothing in column %d of line %d: want a string", at+1, line))
		default:
			items = append(items, []byte(row[at]))
		}
	}
}
