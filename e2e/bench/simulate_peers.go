package main

import (
	"bytes"
	"fmt"
	"time"

	"github.com/rouse-dev/rouse/autoscaler/simulate"
)

var ordinary = []day{
	{name: "mix, 16 GPUs", what: "the default trace on 16 GPUs", cfg: simulate.Config{Devices: 16}},
	{name: "mix, 4 GPUs", what: "the default trace on 4 GPUs", cfg: simulate.Config{Devices: 4}},
	{name: "cron", what: "jobs on 8 GPUs", cfg: simulate.Config{Devices: 8}, shape: simulate.Shape{Load: simulate.Cron}},
	{name: "office", what: "two weeks of working hours on 8 GPUs", cfg: simulate.Config{Devices: 8}, shape: simulate.Shape{Load: simulate.Office, Length: 14 * 24 * time.Hour}},
	{name: "diurnal", what: "a daily curve on 8 GPUs", cfg: simulate.Config{Devices: 8}, shape: simulate.Shape{Load: simulate.Diurnal}},
	{name: "in the shape of Azure", what: "one bursty service in the shape of the Azure traces, spread over 6 models on 4 GPUs", cfg: simulate.Config{Devices: 4}, shape: simulate.Shape{Functions: 1, Load: simulate.Bursty, Rate: 300}, public: "Azure"},
	{name: "in the shape of BurstGPT", what: "two bursty services in the shape of BurstGPT on 2 GPUs", cfg: simulate.Config{Devices: 2}, shape: simulate.Shape{Functions: 2, Load: simulate.Bursty, Rate: 200}, public: "BurstGPT"},
	{name: "40 small models, 4 shared GPUs", what: "40 functions that share 4 GPUs by memory", cfg: simulate.Config{Devices: 4, Shared: true}, shape: simulate.Shape{Functions: 40, Rate: 600}},
}

func (d *day) trace() (simulate.Trace, error) {
	t, err := simulate.Generate(d.shape)
	if err != nil || d.public == "" {
		return t, err
	}
	var b bytes.Buffer
	begin := time.Date(2024, 5, 10, 0, 0, 0, 0, time.UTC)
	b.WriteString(map[string]string{"Azure": "TIMESTAMP,ContextTokens,GeneratedTokens\n", "BurstGPT": "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"}[d.public])
	for _, a := range t {
		if d.public == "Azure" {
			fmt.Fprintf(&b, "%s,%d,%d\n", begin.Add(a.At).Format("2006-01-02 15:04:05.000000"), a.Prompt, a.Output)
		} else {
			fmt.Fprintf(&b, "%.1f,%s,%d,%d,%d,API log\n", a.At.Seconds(), a.Model, a.Prompt, a.Output, a.Prompt+a.Output)
		}
	}
	return simulate.ReadTrace(&b, 6)
}
