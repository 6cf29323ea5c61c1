package main

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strings"

	"hansard/internal/bench"
)

// style is that of all charts: readable on a light page and on a dark one.
const style = `<style>text{font:13px system-ui,sans-serif;fill:#24292f}.t{font-weight:600;font-size:14px}.m{fill:#57606a}.o{fill:#1a7f5a}.p{fill:#8c959f}.d{fill:#d8dee4}
.l0{stroke:#1a7f5a;fill:none;stroke-width:2}.l1{stroke:#9a6700;fill:none;stroke-width:2}.l2{stroke:#57606a;fill:none;stroke-width:2}.c0{fill:#1a7f5a}.c1{fill:#9a6700}.c2{fill:#57606a}.g{stroke:#8c959f;stroke-opacity:.3}
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.m{fill:#9198a1}.o,.c0{fill:#3fb98a}.p{fill:#6e7681}.d{fill:#30363d}.l0{stroke:#3fb98a}.l1{stroke:#d29922}.c1{fill:#d29922}.l2{stroke:#9198a1}.c2{fill:#9198a1}}</style>`

// canvas is a picture that grows as parts are added.
type canvas struct {
	strings.Builder
	width, height int
}

func (c *canvas) text(x, y float64, class, anchor, words string) {
	fmt.Fprintf(c, `<text x="%.0f" y="%.0f" class="%s" text-anchor="%s">%s</text>`+"\n", x, y, class, anchor, html.EscapeString(words))
}

func (c *canvas) bar(x, y, width, height float64, class string) {
	fmt.Fprintf(c, `<rect x="%.0f" y="%.0f" width="%.1f" height="%.0f" rx="2" class="%s"/>`+"\n", x, y, max(width, 1), height, class)
}

func (c *canvas) svg(title string) string {
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" role="img" aria-label="%s">`+"\n%s\n%s</svg>\n",
		c.width, c.height, c.width, html.EscapeString(title), style, c.String())
}

// bars is the chart of the README: how many events per second each peer appends.
func (r *results) bars() string {
	const width, labels, rowHeight, numbers = 430, 120, 20, 100
	c := &canvas{width: 2 * width}
	top := 0
	names := slices.DeleteFunc(r.peersOf(workloadNames()...), func(name string) bool {
		return strings.HasPrefix(name, "pg") // those are for several machines, and far slower: the table has them
	})
	if len(names) == 0 {
		return ""
	}
	for i, w := range bench.Workloads {
		x := float64(i % 2 * width)
		y := float64(top + 24)
		c.text(x+10, y, "t", "start", w.About)
		most := 0.0
		for _, name := range names {
			if v, ok := r.median(w.Name, name, rate); ok && name != diskPeer {
				most = max(most, v)
			}
		}
		for _, name := range names {
			v, ok := r.median(w.Name, name, rate)
			if !ok {
				continue
			}
			y += rowHeight
			class := "p"
			switch name {
			case bench.Hansard.Name:
				class = "o"
			case diskPeer:
				class = "d"
			}
			// The bar of the disk is cut off where it would make the others small.
			long := min(v/most, 1) * (width - labels - numbers)
			c.text(x+labels-8, y+4, "m", "end", name)
			c.bar(x+labels, y-8, long, rowHeight-6, class)
			number := thousands(v)
			if v > most {
				number += " →" // and beyond
			}
			c.text(x+labels+long+6, y+4, "m", "start", number)
		}
		c.height = max(c.height, int(y)+16)
		if i%2 == 1 {
			top = c.height
		}
	}
	c.text(10, float64(c.height+14), "m", "start", "Appends a second, 1 KiB each, durable before acknowledged. "+r.Machine+".")
	c.height += 26
	return c.svg("Appends a second of Hansard and others")
}

// point is one of a line of a chart.
type point struct {
	X float64 `json:"x"`
	Y float64 `json:"y"`
}

// curve is a line of a chart, with its name.
type curve struct {
	Name   string  `json:"name"`
	Points []point `json:"points"`
}

// chart shows how something grows: the horizontal axis is a count, on a logarithmic scale.
type chart struct {
	File   string  `json:"file"`
	Title  string  `json:"title"`
	Across string  `json:"across"` // what is counted
	Unit   string  `json:"unit"`   // of what is measured
	Curves []curve `json:"curves"`
}

// add adds a point to one of the curves.
func (c *chart) add(name string, x, y float64) {
	for i := range c.Curves {
		if c.Curves[i].Name == name {
			c.Curves[i].Points = append(c.Curves[i].Points, point{x, y})
			return
		}
	}
	c.Curves = append(c.Curves, curve{name, []point{{x, y}}})
}

func (c *chart) svg() string {
	const left, right, top, bottom, width, height = 70.0, 44.0, 60.0, 50.0, 640, 320
	pic := &canvas{width: width, height: height}
	first, last, most := math.Inf(1), 0.0, 0.0
	for _, curve := range c.Curves {
		for _, p := range curve.Points {
			first, last, most = min(first, p.X), max(last, p.X), max(most, p.Y)
		}
	}
	if last == 0 {
		return ""
	}
	step := niceStep(most)
	ceiling := step * math.Ceil(most/step)
	place := func(x float64) float64 { return math.Log10(max(x, 0.5)) }
	span := max(place(last)-place(first), 1e-9)
	at := func(p point) (float64, float64) {
		return left + (place(p.X)-place(first))/span*(width-left-right), height - bottom - p.Y/ceiling*(height-top-bottom)
	}
	pic.text(10, 20, "t", "start", c.Title)
	for y := 0.0; y <= ceiling*1.001; y += step {
		_, py := at(point{first, y})
		fmt.Fprintf(pic, `<line x1="%.0f" x2="%.0f" y1="%.0f" y2="%.0f" class="g"/>`+"\n", left, width-right, py, py)
		pic.text(left-8, py+4, "m", "end", short(y))
	}
	marked := map[float64]bool{}
	for i, curve := range c.Curves {
		var path strings.Builder
		for n, p := range curve.Points {
			x, y := at(p)
			word := "L"
			if n == 0 {
				word = "M"
			}
			fmt.Fprintf(&path, "%s%.1f %.1f ", word, x, y)
			fmt.Fprintf(pic, `<circle cx="%.1f" cy="%.1f" r="3" class="c%d"/>`+"\n", x, y, i%3)
			if !marked[p.X] {
				marked[p.X] = true
				pic.text(x, height-bottom+18, "m", "middle", thousands(p.X))
			}
		}
		fmt.Fprintf(pic, `<path d="%s" class="l%d"/>`+"\n", strings.TrimSpace(path.String()), i%3)
		pic.bar(left+float64(i)*190, 32, 10, 10, fmt.Sprintf("c%d", i%3))
		pic.text(left+float64(i)*190+15, 42, "m", "start", curve.Name)
	}
	pic.text(width-right, height-10, "m", "end", c.Across)
	pic.text(10, height-10, "m", "start", c.Unit)
	return pic.svg(c.Title)
}

// niceStep divides a range into about five parts of 1, 2 or 5 times a power of ten.
func niceStep(most float64) float64 {
	if most <= 0 {
		return 1
	}
	rough := most / 5
	power := math.Pow(10, math.Floor(math.Log10(rough)))
	for _, n := range []float64{1, 2, 5} {
		if n*power >= rough {
			return n * power
		}
	}
	return 10 * power
}
