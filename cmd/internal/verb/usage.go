package verb

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/rouse-dev/rouse/api/admin"
	"github.com/rouse-dev/rouse/cmd/internal/render"
)

// Usage is the command that says who has used what.
func (p Program) Usage() *cobra.Command {
	var price float64
	cmd := &cobra.Command{
		Use:   "usage",
		Short: "Show tokens and GPU time by tenant and function",
		Long: `Show tokens and GPU time by tenant and function, since the autoscaler began.

What an instance holds of a GPU's memory is shared, minute by minute, by what tenants
used of it: input, and output twice. What no key used is in the row of the tenant "-".
The rows (asleep) are what sleepers keep, (idle) is what nobody held: all rows together
are the time of all GPUs. With a price for an hour of a GPU they have a cost.`,
		Example: "  " + p.Name + " usage\n  " + p.Name + " usage --gpu-price 2.50\n  " + p.Name + " usage -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !(price >= 0 && price <= 1e9) {
				return fmt.Errorf("--gpu-price %g: want a number of at least 0, such as 2.50", price)
			}
			s, err := p.Connect(cmd)
			if err != nil {
				return err
			}
			var u admin.Usage
			if err := s.Call(cmd.Context(), http.MethodGet, admin.PathUsage, nil, &u); err != nil {
				return err
			}
			for k := range u.Rows {
				u.Rows[k].Cost = u.Rows[k].GPUSeconds / 3600 * price
			}
			return render.Print(cmd, u, func(w io.Writer) error { return printUsage(w, u, price > 0) })
		},
	}
	cmd.Flags().Float64Var(&price, "gpu-price", 0, "what an hour of a GPU costs, in any currency; 0: not said")
	render.Flag(cmd)
	return cmd
}

// mostName keeps the table within a terminal.
const mostName = 14

func printUsage(w io.Writer, u admin.Usage, priced bool) error {
	rows := [][]string{{"TENANT", "FUNCTION", "REQS", "INPUT", "OUTPUT", "GPU-S"}}
	if priced {
		rows[0] = append(rows[0], "COST")
	}
	all := admin.UsageRow{Tenant: "all"}
	add := func(r admin.UsageRow) {
		tenant, function := short(r.Tenant), short(r.Function.Short())
		switch {
		case r.State == admin.UsageIdle || r.State == admin.UsageAsleep:
			tenant = "(" + r.State + ")"
		case tenant == "":
			tenant = "-"
		}
		if function == "" {
			function = "-"
		}
		row := []string{tenant, function, count(r.Requests), count(int64(r.Input)), count(int64(r.Output)), strconv.FormatFloat(r.GPUSeconds, 'f', 1, 64)}
		if priced {
			row = append(row, strconv.FormatFloat(r.Cost, 'f', 2, 64))
		}
		rows = append(rows, row)
	}
	for _, r := range u.Rows {
		add(r)
		all.Requests, all.Input, all.Output = all.Requests+r.Requests, all.Input+r.Input, all.Output+r.Output
		all.GPUSeconds, all.Cost = all.GPUSeconds+r.GPUSeconds, all.Cost+r.Cost
	}
	add(all)
	if err := render.Table(w, rows); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "since %s\n", u.Since.Local().Format(time.DateTime))
	return err
}

// count is n in at most six columns.
func count(n int64) string {
	if n < 100_000 {
		return strconv.FormatInt(n, 10)
	}
	f, unit := float64(n)/1e3, "kMGT"
	for ; f >= 999.5 && len(unit) > 1; unit = unit[1:] {
		f /= 1e3
	}
	return fmt.Sprintf("%.4g%c", f, unit[0])
}

// short cuts a name.
func short(s string) string {
	if r := []rune(s); len(r) > mostName {
		return string(r[:mostName-1]) + "…"
	}
	return s
}
