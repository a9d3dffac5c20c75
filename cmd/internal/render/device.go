package render

import (
	"io"

	"github.com/rouse-dev/rouse/api/admin"
)

// Devices writes a table of the devices' accounts.
func Devices(w io.Writer, devices []admin.Device) error {
	table := [][]string{{"DEVICE", "NAME", "CAPACITY", "AWAKE", "RISING", "RESERVED", "ASLEEP", "LEAVING", "FREE"}}
	for _, l := range devices {
		table = append(table, []string{
			string(l.ID), l.Name, l.Capacity.String(), l.Awake.String(), l.Rising.String(),
			l.Reserved.String(), l.Asleep.String(), l.Leaving.String(), l.Free.String(),
		})
	}
	return Table(w, table)
}
