package simulate

import (
	"bufio"
	"cmp"
	"fmt"
	"html"
	"io"
	"slices"
	"strings"
	"time"
)

// Measures of the picture.
const (
	svgLeft   = 64.0   // labels
	svgWidth  = 1056.0 // of time
	svgRight  = 16.0
	svgRow    = 13.0
	svgGap    = 3.0
	svgCurve  = 46.0
	svgColumn = 1056
	svgRows   = 32
	svgNames  = 24
)

// palette can be distinguished on white and on black.
var palette = []string{"#4c8dd6", "#e08a2b", "#3fa66a", "#d1566a", "#8f6fd0", "#b98a3d", "#2fa5b3", "#c763b0", "#8aa62f", "#6b7fa3", "#d9694a", "#4f9f8f"}

func colour(model int) string { return palette[model%len(palette)] }

// SVG draws results of runs with [Config.Record]: for each policy the instances that hold each GPU over time, pale
// while rising or falling, and the number of waiting requests. cfg has its defaults set.
func SVG(w io.Writer, cfg Config, results []Result) error {
	length, most := time.Nanosecond, 1
	for _, r := range results {
		length = max(length, r.length)
		for _, m := range r.waits {
			most = max(most, m.waiting)
		}
	}
	rows := min(cfg.Devices, svgRows)
	panel := 34 + float64(rows)*(svgRow+svgGap) + svgCurve + 34
	legend := 20 * float64((min(len(cfg.Models), svgNames)+7)/8)
	height := 34 + legend + panel*float64(len(results))
	p := painter{w: bufio.NewWriter(w), cfg: cfg, length: length, most: most, rows: rows}
	p.f(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" font-family="system-ui, sans-serif" font-size="12">`, svgLeft+svgWidth+svgRight, height)
	p.f(`<title>Who holds which GPU, and how many requests wait, by policy</title>`)
	p.f(`<style>text{fill:#444c56}.t{fill:#8882}.g{stroke:#8884}.w{fill:#8888;stroke:#888}@media(prefers-color-scheme:dark){text{fill:#c9d1d9}}</style>`)
	p.legend()
	for k := range results {
		p.panel(&results[k], 34+legend+panel*float64(k))
	}
	p.f(`</svg>`)
	return p.w.Flush()
}

// painter draws the picture; w keeps write errors until the end.
type painter struct {
	w      *bufio.Writer
	cfg    Config
	length time.Duration
	most   int
	rows   int
}

func (p *painter) f(format string, args ...any) {
	fmt.Fprintf(p.w, format, args...)
	_ = p.w.WriteByte('\n')
}

func (p *painter) x(t time.Duration) float64 {
	return svgLeft + svgWidth*float64(t)/float64(p.length)
}

func (p *painter) legend() {
	for k := range min(len(p.cfg.Models), svgNames) {
		x, y := svgLeft+float64(k%8)*svgWidth/8, 14+20*float64(k/8)
		name := string(p.cfg.Models[k].Name)
		if r := []rune(name); len(r) > 16 {
			name = string(r[:15]) + "…"
		}
		p.f(`<rect x="%.1f" y="%.1f" width="11" height="11" rx="2" fill="%s"/><text x="%.1f" y="%.1f">%s</text>`,
			x, y, colour(k), x+16, y+10, html.EscapeString(name))
	}
	if more := len(p.cfg.Models) - svgNames; more > 0 {
		p.f(`<text x="%.1f" y="%.1f" text-anchor="end">and %d more, in the same colours</text>`, svgLeft+svgWidth, 14+20*float64((svgNames+7)/8)+2, more)
	}
}

func (p *painter) panel(r *Result, y float64) {
	p.f(`<text x="%.1f" y="%.1f" font-size="15" font-weight="600">%s</text>`, svgLeft, y+14, r.Name)
	p.f(`<text x="%.1f" y="%.1f">%.1f GPU-hours · time to first token p50 %s, p95 %s · %.1f %% hot starts · %d refused · %d swaps</text>`,
		svgLeft+100, y+14, r.GPUHours, ms(r.P50), ms(r.P95), 100*r.HotShare, r.Refused, r.Swaps)
	y += 24
	for d := range p.rows {
		at := y + float64(d)*(svgRow+svgGap)
		p.f(`<text x="%.1f" y="%.1f" text-anchor="end" font-size="10">GPU %d</text>`, svgLeft-6, at+svgRow-3, d)
		p.f(`<rect class="t" x="%.1f" y="%.1f" width="%.1f" height="%.1f"/>`, svgLeft, at, svgWidth, svgRow)
	}
	for d, spans := range p.byDevice(r.spans) {
		p.row(spans, y+float64(d)*(svgRow+svgGap))
	}
	y += float64(p.rows) * (svgRow + svgGap)
	if p.cfg.Devices > p.rows {
		p.f(`<text x="%.1f" y="%.1f" text-anchor="end" font-size="10">and %d more GPUs</text>`, svgLeft+svgWidth, y+8, p.cfg.Devices-p.rows)
	}
	p.curve(r, y+10)
	p.axis(y + 10 + svgCurve)
}

func (p *painter) byDevice(spans []span) [][]span {
	by := make([][]span, p.rows)
	for _, s := range spans {
		for _, d := range s.devices {
			if d < p.rows && s.state < asleep {
				by[d] = append(by[d], s)
			}
		}
	}
	return by
}

type piece struct {
	model int // -1: none
	pale  bool
}

// row draws one GPU. Each column shows the model with the largest part of it, so that thousands of swaps a day stay
// readable.
func (p *painter) row(spans []span, y float64) {
	slices.SortStableFunc(spans, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	step := max(1, p.length/svgColumn)
	cells := make([]piece, svgColumn)
	won := make([]time.Duration, svgColumn)
	for k := range cells {
		cells[k].model = -1
	}
	for _, s := range spans {
		for k := int(s.from / step); k < svgColumn && time.Duration(k)*step < s.to; k++ {
			part := min(s.to, time.Duration(k+1)*step) - max(s.from, time.Duration(k)*step)
			if part > won[k] {
				won[k], cells[k] = part, piece{s.model, s.state != awake}
			}
		}
	}
	for from := 0; from < svgColumn; {
		to := from + 1
		for to < svgColumn && cells[to] == cells[from] {
			to++
		}
		if c := cells[from]; c.model >= 0 {
			opacity := ""
			if c.pale {
				opacity = ` opacity=".45"`
			}
			p.f(`<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"%s/>`,
				svgLeft+svgWidth*float64(from)/svgColumn, y, svgWidth*float64(to-from)/svgColumn, svgRow, colour(c.model), opacity)
		}
		from = to
	}
}

// curve draws the most waiting requests in each column.
func (p *painter) curve(r *Result, y float64) {
	step := max(1, p.length/svgColumn)
	tops := make([]int, svgColumn)
	for k, m := range r.waits {
		until := r.length
		if k+1 < len(r.waits) {
			until = r.waits[k+1].at
		}
		for c := int(m.at / step); c < svgColumn && time.Duration(c)*step <= until; c++ {
			tops[c] = max(tops[c], m.waiting)
		}
	}
	var path strings.Builder
	fmt.Fprintf(&path, "M%.1f %.1f", svgLeft, y+svgCurve)
	for c, n := range tops {
		if c > 0 && c+1 < svgColumn && tops[c-1] == n && tops[c+1] == n {
			continue
		}
		fmt.Fprintf(&path, "L%.1f %.1f", svgLeft+svgWidth*(float64(c)+0.5)/svgColumn, y+svgCurve*(1-float64(n)/float64(p.most)))
	}
	fmt.Fprintf(&path, "L%.1f %.1fZ", svgLeft+svgWidth, y+svgCurve)
	p.f(`<text x="%.1f" y="%.1f" text-anchor="end" font-size="10">waiting</text><text x="%.1f" y="%.1f" text-anchor="end" font-size="10">%d</text>`,
		svgLeft-6, y+svgCurve, svgLeft-6, y+8, p.most)
	p.f(`<path class="w" stroke-width=".8" d="%s"/>`, path.String())
}

// ticks are the possible distances on an axis.
var ticks = []time.Duration{time.Second, 10 * time.Second, time.Minute, 5 * time.Minute, 15 * time.Minute, time.Hour, 2 * time.Hour, 6 * time.Hour, 24 * time.Hour, 7 * 24 * time.Hour, 30 * 24 * time.Hour}

func (p *painter) axis(y float64) {
	tick := ticks[len(ticks)-1]
	for _, t := range ticks {
		if p.length/t <= 14 {
			tick = t
			break
		}
	}
	for t := time.Duration(0); t <= p.length; t += tick {
		p.f(`<path class="g" d="M%.1f %.1fv5"/><text x="%.1f" y="%.1f" text-anchor="middle" font-size="10">%s</text>`, p.x(t), y, p.x(t), y+15, sayKeep(t.Seconds()))
	}
}
