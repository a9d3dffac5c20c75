package render

import "github.com/rouse-dev/rouse/api/admin"

// DeviceRows returns a table of the devices' accounts.
func DeviceRows(devices []admin.Device) [][]string {
	table := [][]string{{"DEVICE", "NAME", "CAPACITY", "AWAKE", "RISING", "RESERVED", "ASLEEP", "LEAVING", "FREE"}}
	for _, l := range devices {
		table = append(table, []string{
			string(l.ID), l.Name, l.Capacity.String(), l.Awake.String(), l.Rising.String(),
			l.Reserved.String(), l.Asleep.String(), l.Leaving.String(), l.Free.String(),
		})
	}
	return table
}
