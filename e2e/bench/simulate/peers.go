package main

import (
	"context"
	"time"

	"github.com/rouse-dev/rouse/autoscaler/simulate"
	"github.com/rouse-dev/rouse/e2e/bench/report"
)

// ordinary are days on which the newest peers are compared.
var ordinary = []day{
	{name: "mix, 16 GPUs", what: "the default trace on 16 GPUs", cfg: simulate.Config{Devices: 16}},
	{name: "mix, 4 GPUs", what: "the default trace on 4 GPUs", cfg: simulate.Config{Devices: 4}},
	{name: "cron", what: "jobs on 8 GPUs", cfg: simulate.Config{Devices: 8}, shape: simulate.Shape{Load: simulate.Cron}},
	{name: "office", what: "two weeks of working hours on 8 GPUs", cfg: simulate.Config{Devices: 8}, shape: simulate.Shape{Load: simulate.Office, Length: 14 * 24 * time.Hour}},
	{name: "diurnal", what: "a daily curve on 8 GPUs", cfg: simulate.Config{Devices: 8}, shape: simulate.Shape{Load: simulate.Diurnal}},
	{name: "40 small models, 4 shared GPUs", what: "40 functions that share 4 GPUs by memory", cfg: simulate.Config{Devices: 4, Shared: true}, shape: simulate.Shape{Functions: 40, Rate: 600}},
}

// peers is 5.
func (b *bench) peers(ctx context.Context) ([]report.Measurement, error) {
	return b.days(ctx, ordinary)
}
