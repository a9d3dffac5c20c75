package render

import (
	"io"

	"github.com/rouse-dev/rouse/api/admin"
)

// Devices writes a table of the devices' accounts.
func Devices(w io.Writer, devices []admin.Device) error {
	table := Rows{{"DEVICE", "NAME", "CAPACITY", "AWAKE", "RISING", "RESERVED", "ASLEEP", "LEAVING", "FREE"}}
	for _, l := range devices {
		table.Add(l.ID, l.Name, l.Capacity, l.Awake, l.Rising, l.Reserved, l.Asleep, l.Leaving, l.Free)
	}
	return Table(w, table)
}
