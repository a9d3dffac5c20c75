package pyfunc

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/rouse-dev/rouse/functions/pyfunc/internal/span"
)

// column collects the strings of a call, whichever form they come in. Its
// methods return failures for what a scoring server refuses, and other errors
// for what the model behind it does.
type column struct {
	body  []byte
	items [][]byte
}

// notOne is the model's refusal of a table with more or fewer columns.
func notOne(n int) error {
	return fmt.Errorf("Dataframe must have only one column, but received %d columns", n) //nolint:staticcheck // the stock server's words
}

// cell takes the value of one cell.
func (c *column) cell(from, to int) error {
	if c.body[from] != '"' {
		return fmt.Errorf("input %d is of type %s: want a string", len(c.items), pythonType(c.body[from:to]))
	}
	c.items = append(c.items, span.Text(c.body[from:to]))
	return nil
}

// row takes a cell, or a list of one cell.
func (c *column) row(from, to int) error {
	if c.body[from] != '[' {
		return c.cell(from, to)
	}
	n := 0
	_, err := span.Array(c.body[:to], from, func(from, to int) error {
		n++
		if n > 1 {
			return nil // counted only
		}
		return c.cell(from, to)
	})
	if err == nil && n != 1 {
		err = notOne(n)
	}
	return err
}

// inputs takes a list of strings, or an object: its values in order, or the list
// of strings that its only value is.
func (c *column) inputs(data interval) error {
	switch c.body[data.from] {
	case '[':
		return c.list(data)
	case '{':
	default:
		return fmt.Errorf("model_input must be a list, dict, numpy array, or dataframe but received: %s", pythonType(data.in(c.body)))
	}
	n, lists := 0, 0
	_, err := span.Object(c.body[:data.to], data.from, func(key []byte, from, to int) error {
		n++
		if string(key) == "signature_name" {
			return failure{Message: `Invalid input. "signature_name" parameter is currently not supported`}
		}
		if c.body[from] == '[' {
			lists++
			if n > 1 {
				return nil // refused below
			}
			return c.list(interval{from, to})
		}
		return c.cell(from, to)
	})
	if err == nil && lists > 0 && n > 1 {
		err = notOne(n)
	}
	return err
}

// list takes a list of rows.
func (c *column) list(data interval) error {
	records := false
	_, err := span.Array(c.body[:data.to], data.from, func(from, to int) error {
		records = records || c.body[from] == '{'
		if records {
			return nil
		}
		return c.row(from, to)
	})
	if err == nil && records {
		if len(c.items) > 0 {
			return errors.New("some inputs are objects and others are not: want strings")
		}
		return c.records(data)
	}
	return err
}

// instances takes what inputs does; of objects each column must be as long as
// the others.
func (c *column) instances(data interval) error {
	if c.body[data.from] != '[' {
		return c.inputs(data)
	}
	lengths := map[string]int{}
	_, err := span.Array(c.body[:data.to], data.from, func(from, to int) error {
		if c.body[from] != '{' {
			return nil
		}
		_, err := span.Object(c.body[:to], from, func(key []byte, _, _ int) error {
			lengths[string(key)]++
			return nil
		})
		return err
	})
	if err != nil {
		return err
	}
	first := -1
	for _, n := range lengths {
		if first >= 0 && n != first {
			return failure{Message: "Failed to parse data as TF serving input. The length of values for each input/column name are not the same"}
		}
		first = n
	}
	return c.list(data)
}

// records takes a list of objects with one and the same key.
func (c *column) records(data interval) error {
	if c.body[data.from] != '[' {
		got := "type " + pythonType(data.in(c.body))
		if c.body[data.from] == '{' {
			got = "dictionary"
		}
		return failure{Message: "Dataframe records format must be a list of records. Got " + got + "."}
	}
	var names []string
	_, err := span.Array(c.body[:data.to], data.from, func(from, to int) error {
		if c.body[from] != '{' {
			return c.row(from, to)
		}
		before := len(c.items)
		_, err := span.Object(c.body[:to], from, func(key []byte, from, to int) error {
			if !slices.Contains(names, string(key)) {
				if names = append(names, string(key)); len(names) > 1000 {
					return notOne(len(names))
				}
			}
			if len(names) > 1 {
				return nil // refused below
			}
			return c.cell(from, to)
		})
		if err == nil && len(names) == 1 && len(c.items) != before+1 {
			err = fmt.Errorf("record %d has no value, or two, for its column: want one string", before)
		}
		return err
	})
	if err == nil && len(names) > 1 {
		err = notOne(len(names))
	}
	return err
}

// split takes {"columns": […], "index": […], "data": […]}.
func (c *column) split(data interval) error {
	if c.body[data.from] != '{' {
		got := "type " + pythonType(data.in(c.body))
		if c.body[data.from] == '[' {
			got = "list"
		}
		return failure{Message: "Dataframe split format must be a dictionary. Got " + got + "."}
	}
	parts := map[string]interval{}
	var got []string
	_, err := span.Object(c.body[:data.to], data.from, func(key []byte, from, to int) error {
		if _, twice := parts[string(key)]; !twice && len(got) < 10 {
			got = append(got, "'"+string(key)+"'")
		}
		parts[string(key)] = interval{from, to}
		return nil
	})
	if err != nil {
		return err
	}
	rows, found := parts["data"]
	for name := range parts {
		found = found && (name == "data" || name == "columns" || name == "index")
	}
	if !found {
		return failure{Message: "Dataframe split format must have 'data' field and optionally 'columns' and 'index' fields. Got {" + strings.Join(got, ", ") + "}."}
	}
	return c.frame(rows, parts["columns"], parts["index"])
}

// frame takes the rows of a frame whose names and index must fit them.
func (c *column) frame(rows, names, index interval) error {
	invalid := func(why string) error {
		return failure{Message: "Provided dataframe_split field is not a valid dataframe representation in 'split' format. Error: '" + why + "'"}
	}
	n, err := c.length(rows)
	if err != nil {
		return invalid("data: " + err.Error())
	}
	width, named := 1, names.to > 0 && c.body[names.from] != 'n'
	if named {
		if width, err = c.length(names); err != nil {
			return invalid("columns: " + err.Error())
		}
	}
	if index.to > 0 && c.body[index.from] != 'n' {
		labels, err := c.length(index)
		if err != nil {
			return invalid("index: " + err.Error())
		}
		if labels != n {
			return invalid(fmt.Sprintf("there are %d rows and %d labels in the index", n, labels))
		}
	}
	_, err = span.Array(c.body[:rows.to], rows.from, func(from, to int) error {
		cells := 1
		if c.body[from] == '[' {
			cells, _ = c.length(interval{from, to}) // it is a list
		}
		switch {
		case named && cells != width:
			return invalid(fmt.Sprintf("%d columns are named and a row has %d", width, cells))
		case cells != 1:
			return notOne(cells)
		}
		return c.row(from, to)
	})
	return err
}

// length is the number of items of a list.
func (c *column) length(list interval) (n int, err error) {
	if c.body[list.from] != '[' {
		return 0, fmt.Errorf("it is of type %s: want a list", pythonType(list.in(c.body)))
	}
	_, err = span.Array(c.body[:list.to], list.from, func(int, int) error { n++; return nil })
	return n, err
}

// csvColumn reads a table of one column below a line with its name.
func csvColumn(body []byte) ([][]byte, error) {
	invalid := func(why string) error {
		return failure{Message: "Failed to parse input as a Pandas DataFrame. Ensure that the input is a valid CSV-formatted" +
			" Pandas DataFrame produced using the `pandas.DataFrame.to_csv()` method. Error: '" + why + "'"}
	}
	in := csv.NewReader(bytes.NewReader(bytes.TrimPrefix(body, []byte("\ufeff"))))
	in.FieldsPerRecord = -1
	head, err := in.Read()
	switch {
	case err == io.EOF:
		return nil, invalid("No columns to parse from file")
	case err != nil:
		return nil, invalid(err.Error())
	case len(head) != 1:
		return nil, unexpected(notOne(len(head)).Error() + ": write it without its index")
	}
	var items [][]byte
	for {
		row, err := in.Read()
		switch {
		case err == io.EOF:
			return items, nil
		case err != nil:
			return nil, invalid(err.Error())
		case len(row) != 1:
			return nil, invalid(fmt.Sprintf("Expected 1 fields in line %d, saw %d", line(in), len(row)))
		}
		items = append(items, []byte(row[0]))
	}
}

func line(in *csv.Reader) int {
	n, _ := in.FieldPos(0)
	return n
}
