package device

import (
	"flag"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// NvidiaSMI does what nvidia-smi does with args, and returns its exit status. It knows --query-gpu,
// --query-compute-apps (of its own namespace) and --format. visible is NVIDIA_VISIBLE_DEVICES; "" and "all": every
// device.
func NvidiaSMI(dir, visible string, args []string, stdout, stderr io.Writer) int {
	fs := flag.NewFlagSet("nvidia-smi", flag.ContinueOnError)
	fs.SetOutput(stderr)
	gpus := fs.String("query-gpu", "", "`fields` of each device")
	apps := fs.String("query-compute-apps", "", "`fields` of each process")
	format := fs.String("format", "", "csv[,noheader][,nounits]")
	if err := fs.Parse(args); err != nil {
		return 1
	}
	devices, err := List(dir)
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 255
	}
	devices = choose(devices, visible)
	if len(devices) == 0 {
		fmt.Fprintln(stdout, "No devices were found")
		return 6
	}
	if (*gpus == "") == (*apps == "") {
		fmt.Fprintln(stdout, "Want one of --query-gpu=FIELDS and --query-compute-apps=FIELDS, with --format=csv.")
		return 1
	}
	var rows []row
	here := namespace()
	for _, d := range devices {
		if *gpus != "" {
			rows = append(rows, row{Device: d})
			continue
		}
		for _, p := range d.Processes {
			if p.Bytes > 0 && p.Namespace == here {
				rows = append(rows, row{Device: d, process: p})
			}
		}
	}
	return table(stdout, *gpus+*apps, *format, rows)
}

func choose(devices []Device, names string) []Device {
	if names == "" || names == "all" {
		return devices
	}
	wanted := strings.Split(names, ",")
	return slices.DeleteFunc(devices, func(d Device) bool {
		return !slices.Contains(wanted, strconv.Itoa(d.Index)) && !slices.Contains(wanted, d.UUID)
	})
}

type row struct {
	Device
	process Process
}

// An amount of memory is an int64.
var fields = map[string]func(row) any{
	"index":            func(r row) any { return r.Index },
	"mig.mode.current": func(row) any { return "[N/A]" },
	"uuid":             func(r row) any { return r.UUID },
	"gpu_uuid":         func(r row) any { return r.UUID },
	"name":             func(r row) any { return r.Name },
	"memory.total":     func(r row) any { return r.Memory },
	"memory.used":      func(r row) any { return r.Used() },
	"pid":              func(r row) any { return r.process.PID },
	"process_name":     func(r row) any { return r.process.Name },
	"used_memory":      func(r row) any { return r.process.Bytes },
	"used_gpu_memory":  func(r row) any { return r.process.Bytes },
}

func table(w io.Writer, columns, format string, rows []row) int {
	options := strings.Split(format, ",")
	if options[0] != "csv" {
		fmt.Fprintln(w, `"--format=" is required with a query. Run 'nvidia-smi --help' for more information.`)
		return 2
	}
	units := !slices.Contains(options, "nounits")
	names := strings.Split(columns, ",")
	titles := make([]string, len(names))
	for i, name := range names {
		field, known := fields[name]
		if !known {
			fmt.Fprintf(w, "Field \"%s\" is not a valid field to query.\n\n", name)
			return 2
		}
		titles[i] = strings.Replace(name, "used_memory", "used_gpu_memory", 1)
		if _, amount := field(row{}).(int64); amount && units {
			titles[i] += " [MiB]"
		}
	}
	if !slices.Contains(options, "noheader") {
		fmt.Fprintln(w, strings.Join(titles, ", "))
	}
	for _, r := range rows {
		cells := make([]string, len(names))
		for i, name := range names {
			value := fields[name](r)
			bytes, amount := value.(int64)
			if amount {
				value = bytes >> 20
			}
			cells[i] = fmt.Sprint(value)
			if amount && units {
				cells[i] += " MiB"
			}
		}
		fmt.Fprintln(w, strings.Join(cells, ", "))
	}
	return 0
}
