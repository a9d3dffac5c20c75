package device

import (
	"flag"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// driver is the version that the devices claim to be driven by.
const driver = "580.00.00"

// NvidiaSMI does what the program nvidia-smi does with args, for the devices of
// dir, and returns its exit status. It knows -L, --query-gpu,
// --query-compute-apps (of processes of its own namespace), --format and -i. visible are the devices that the container it
// runs in was given, as NVIDIA_VISIBLE_DEVICES names them; "" and "all": every one.
func NvidiaSMI(dir, visible string, args []string, stdout, stderr io.Writer) int {
	fs := flag.NewFlagSet("nvidia-smi", flag.ContinueOnError)
	fs.SetOutput(stderr)
	list := fs.Bool("L", false, "list the devices")
	fs.BoolVar(list, "list-gpus", false, "list the devices")
	gpus := fs.String("query-gpu", "", "`fields` of each device")
	apps := fs.String("query-compute-apps", "", "`fields` of each process")
	format := fs.String("format", "", "csv[,noheader][,nounits]")
	only := fs.String("i", "", "only these devices, by `index` or UUID")
	fs.StringVar(only, "id", "", "only these devices, by `index` or UUID")
	if err := fs.Parse(args); err != nil {
		return 1
	}
	devices, err := List(dir)
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 255
	}
	devices = choose(choose(devices, visible), *only)
	if len(devices) == 0 {
		fmt.Fprintln(stdout, "No devices were found")
		return 6
	}
	switch {
	case *list:
		for _, d := range devices {
			fmt.Fprintf(stdout, "GPU %d: %s (UUID: %s)\n", d.Index, d.Name, d.UUID)
		}
		return 0
	case *gpus != "" && *apps == "":
		var rows []row
		for _, d := range devices {
			rows = append(rows, row{device: d})
		}
		return table(stdout, *gpus, *format, gpuFields, rows)
	case *apps != "" && *gpus == "":
		var rows []row
		here := namespace()
		for _, d := range devices {
			for _, p := range d.Processes {
				if p.Bytes > 0 && p.Namespace == here {
					rows = append(rows, row{device: d, process: p})
				}
			}
		}
		return table(stdout, *apps, *format, appFields, rows)
	}
	fmt.Fprintln(stdout, "Want one of -L, --query-gpu=FIELDS or --query-compute-apps=FIELDS, with --format=csv.")
	return 1
}

// choose returns the devices that names has, by index or UUID; "" and "all": every one.
func choose(devices []Device, names string) []Device {
	if names == "" || names == "all" {
		return devices
	}
	wanted := strings.Split(names, ",")
	return slices.DeleteFunc(devices, func(d Device) bool {
		return !slices.Contains(wanted, strconv.Itoa(d.Index)) && !slices.Contains(wanted, d.UUID)
	})
}

// row is what one line speaks of.
type row struct {
	device  Device
	process Process
}

// field is a column: its title, the unit of its numbers, and its value.
type field struct {
	title, unit string
	value       func(row) string
}

func mebibytes(n int64) string { return strconv.FormatInt(max(0, n)>>20, 10) }

func text(title string, f func(row) string) field { return field{title: title, value: f} }

func amount(title string, f func(row) int64) field {
	return field{title: title, unit: "MiB", value: func(r row) string { return mebibytes(f(r)) }}
}

var (
	uuid   = func(r row) string { return r.device.UUID }
	name   = func(r row) string { return r.device.Name }
	bus    = func(r row) string { return fmt.Sprintf("00000000:%02X:00.0", r.device.Index+1) }
	app    = func(r row) string { return r.process.Name }
	use    = func(r row) int64 { return r.process.Bytes }
	common = map[string]field{
		"timestamp": text("timestamp", func(row) string { return time.Now().Format("2006/01/02 15:04:05.000") }),
		"gpu_uuid":  text("gpu_uuid", uuid),
		"gpu_name":  text("gpu_name", name),
	}
	gpuFields = map[string]field{
		"index":           text("index", func(r row) string { return strconv.Itoa(r.device.Index) }),
		"uuid":            text("uuid", uuid),
		"name":            text("name", name),
		"pci.bus_id":      text("pci.bus_id", bus),
		"driver_version":  text("driver_version", func(row) string { return driver }),
		"pstate":          text("pstate", func(row) string { return "P0" }),
		"memory.total":    amount("memory.total", func(r row) int64 { return r.device.Memory }),
		"memory.used":     amount("memory.used", func(r row) int64 { return r.device.Used() }),
		"memory.free":     amount("memory.free", func(r row) int64 { return r.device.Free() }),
		"memory.reserved": amount("memory.reserved", func(row) int64 { return 0 }),
		"utilization.gpu": {title: "utilization.gpu", unit: "%", value: func(row) string { return "0" }},
		"compute_cap":     text("compute_cap", func(row) string { return "9.0" }),
	}
	appFields = map[string]field{
		"pid":             text("pid", func(r row) string { return strconv.Itoa(r.process.PID) }),
		"process_name":    text("process_name", app),
		"name":            text("process_name", app),
		"used_memory":     amount("used_gpu_memory", use),
		"used_gpu_memory": amount("used_gpu_memory", use),
		"gpu_bus_id":      text("gpu_bus_id", bus),
	}
)

// table prints the fields of the rows as CSV.
func table(w io.Writer, fields, format string, known map[string]field, rows []row) int {
	options := strings.Split(format, ",")
	if options[0] != "csv" {
		fmt.Fprintln(w, `"--format=" is required with a query. Run 'nvidia-smi --help' for more information.`)
		return 2
	}
	var columns []field
	for _, name := range strings.Split(fields, ",") {
		name = strings.TrimSpace(name)
		c, found := known[name]
		if !found {
			c, found = common[name]
		}
		if !found {
			fmt.Fprintf(w, "Field \"%s\" is not a valid field to query.\n\n", name)
			return 2
		}
		columns = append(columns, c)
	}
	units := !slices.Contains(options, "nounits")
	line := func(cell func(field) string) {
		cells := make([]string, 0, len(columns))
		for _, c := range columns {
			cells = append(cells, cell(c))
		}
		fmt.Fprintln(w, strings.Join(cells, ", "))
	}
	if !slices.Contains(options, "noheader") {
		line(func(c field) string {
			if c.unit == "" || !units {
				return c.title
			}
			return c.title + " [" + c.unit + "]"
		})
	}
	for _, r := range rows {
		line(func(c field) string {
			if c.unit == "" || !units {
				return c.value(r)
			}
			return c.value(r) + " " + c.unit
		})
	}
	return 0
}
