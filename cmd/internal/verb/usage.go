package verb

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
	"github.com/rouse-dev/rouse/cmd/internal/render"
	"github.com/rouse-dev/rouse/internal/flagset"
)

// Usage prints the usage by client.
func (p Program) Usage() *cobra.Command {
	var f struct {
		Price   float64 `flag:"gpu-price" help:"what an hour of a GPU costs, in any currency; 0: not said"`
		Since   string  `flag:"since" help:"what was used in so <long> until now, such as 90m, 24h or 7d"`
		From    string  `flag:"from" help:"what was used from a <time> on, such as 2026-11-01 or 2026-11-01T15:04"`
		To      string  `flag:"to" help:"what was used up to a <time>"`
		Request string  `flag:"request" help:"what one of the last requests used, by its <id>, from the header X-Request-Id of its answer"`
	}
	var q admin.UsageQuery
	cmd := p.Command(&cobra.Command{
		Use:   "usage",
		Short: "Show tokens and GPU time by tenant and function",
		Long: `Show tokens and GPU time by tenant and function, since counting began, or in a
time that --since, or --from and --to name: minutes are kept for a day, then hours.

What an instance holds of a GPU's memory is divided, at each moment, among the requests
that it runs, and while it starts or wakes among those that wait for it. What nobody used,
or nobody with a key, is in the row of the tenant "-".
The rows (asleep) are what sleepers keep, (idle) is what nobody held: all rows together
are the time of all GPUs. With a price for an hour of a GPU they have a cost.`,
		Example: "  " + p.Name + " usage\n  " + p.Name + " usage --since 24h --gpu-price 2.50\n  " +
			p.Name + " usage --from 2026-11-01 --to 2026-11-08 --keys\n  " + p.Name + " usage --request req_NPLVLRCBFCTIPRZDWYMNPCWP7B\n  " + p.Name + " usage -o json",
		Args: cobra.NoArgs,
		PreRunE: func(*cobra.Command, []string) error {
			if !(f.Price >= 0 && f.Price <= 1e9) {
				return fmt.Errorf("--gpu-price %g: want a number of at least 0, such as 2.50", f.Price)
			}
			return during(&q, f.Since, f.From, f.To, time.Now())
		},
	}, "", func(cmd *cobra.Command, s *Server, _ []string) error {
		if f.Request != "" {
			return printRequest(cmd, s, f.Request, f.Price)
		}
		var u admin.Usage
		if err := s.Call(cmd.Context(), http.MethodGet, admin.PathUsage+"?"+q.Values().Encode(), nil, &u); err != nil {
			return err
		}
		for k := range u.Rows {
			u.Rows[k].Cost = u.Rows[k].GPUSeconds / 3600 * f.Price
		}
		return render.Print(cmd, u, func(w io.Writer, u admin.Usage) error { return printUsage(w, u, q.Keys, f.Price > 0) })
	})
	flagset.Add(cmd.Flags(), &f)
	cmd.Flags().BoolVar(&q.Keys, "keys", false, "a row for each key of a tenant")
	cmd.MarkFlagsMutuallyExclusive("since", "from", "request")
	cmd.MarkFlagsMutuallyExclusive("since", "to", "request")
	render.Flag(cmd)
	return cmd
}

func printRequest(cmd *cobra.Command, s *Server, id string, price float64) error {
	picks, err := picksOf(cmd, s, id)
	if err != nil {
		return err
	}
	return render.Print(cmd, picks, func(w io.Writer, picks []api.Pick) error {
		rows := render.Rows{{"REQUEST", "AT", "FUNCTION", "INSTANCE", "GPU-S", "COST"}}
		for _, p := range picks {
			rows.Add(p.Request, p.At.Local().Format(time.TimeOnly), p.Function.Short(), p.Instance, strconv.FormatFloat(p.GPUSeconds, 'f', 3, 64), strconv.FormatFloat(p.GPUSeconds/3600*price, 'f', 6, 64))
		}
		for k := range rows {
			if price == 0 {
				rows[k] = rows[k][:5]
			}
		}
		return render.Table(w, rows)
	})
}

func during(q *admin.UsageQuery, since, from, to string, now time.Time) (err error) {
	if since != "" {
		d, err := api.ParseDuration(since)
		if err != nil || d <= 0 {
			return fmt.Errorf("--since %s: want a time such as 90m, 24h or 7d", since)
		}
		q.From = now.Add(-min(d, 36500*24*time.Hour)) // earlier years may have no text
		return nil
	}
	if q.From, err = moment(from); err != nil {
		return fmt.Errorf("--from %s: %w", from, err)
	}
	if q.To, err = moment(to); err != nil {
		return fmt.Errorf("--to %s: %w", to, err)
	}
	if !q.To.IsZero() && !q.From.Before(q.To) {
		return fmt.Errorf("--from %s --to %s: want a time that is later", from, to)
	}
	return nil
}

// moment parses a time, local if without a zone.
func moment(text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t, nil
	}
	for _, layout := range []string{time.DateOnly, "2006-01-02T15:04", "2006-01-02 15:04", "2006-01-02T15:04:05", time.DateTime} {
		if t, err := time.ParseInLocation(layout, text, time.Local); err == nil {
			return t, nil
		}
	}
	return time.Time{}, errors.New("want a time such as 2026-11-01, 2026-11-01T15:04 or 2026-11-01T15:04:05Z")
}

func printUsage(w io.Writer, u admin.Usage, keys, priced bool) error {
	var rows render.Rows
	line := func(row ...any) {
		if !keys {
			row = slices.Delete(row, 1, 2)
		}
		if !priced {
			row = row[:len(row)-1]
		}
		rows.Add(row...)
	}
	line("TENANT", "KEY", "FUNCTION", "REQS", "INPUT", "CACHED", "OUTPUT", "GPU-S", "COST")
	all := admin.UsageRow{Tenant: "all"}
	add := func(r admin.UsageRow) {
		tenant := cmp.Or(r.Tenant, "-")
		if r.State == admin.UsageIdle || r.State == admin.UsageAsleep {
			tenant = "(" + r.State + ")"
		}
		line(tenant, cmp.Or(r.Key, "-"), cmp.Or(r.Function.Short(), "-"), r.Requests, r.Input, r.Cached, r.Output,
			strconv.FormatFloat(r.GPUSeconds, 'f', 1, 64), strconv.FormatFloat(r.Cost, 'f', 2, 64))
	}
	for _, r := range u.Rows {
		add(r)
		all.Requests, all.Input, all.Cached, all.Output = all.Requests+r.Requests, all.Input+r.Input, all.Cached+r.Cached, all.Output+r.Output
		all.GPUSeconds, all.Cost = all.GPUSeconds+r.GPUSeconds, all.Cost+r.Cost
	}
	add(all)
	if err := render.Table(w, rows); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "from %s to %s\n", u.Since.Local().Format(time.DateTime), u.Until.Local().Format(time.DateTime))
	return err
}
