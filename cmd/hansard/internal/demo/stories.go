package demo

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"hansard"
)

// stories are played one after the other, and then again, with other names and
// numbers.
var stories = []func(*rand.Rand) story{trip, bug, incident, sales, letters}

func pick(rng *rand.Rand, of ...string) string { return of[rng.IntN(len(of))] }

func ptr(s string) *string { return &s }

func trip(rng *rand.Rand) story {
	who := pick(rng, "ada", "grace", "linus", "mei")
	city := pick(rng, "Lima", "Lisbon", "Kyoto", "Tromsø", "Oaxaca")
	fare := 300 + rng.IntN(900)
	var days strings.Builder
	temps := make([]float64, 7)
	for i, day := range []string{"Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"} {
		temps[i] = float64(14 + rng.IntN(16))
		fmt.Fprintf(&days, "| %s | %.0f °C | %s |\n", day, temps[i], pick(rng, "sunny", "cloudy", "some rain", "windy"))
	}
	return story{
		name: "trip", title: "A week in " + city, labels: map[string]string{"team": "travel", "owner": who},
		beats: []beat{
			user(who, "I have a week off. Could you plan a trip to "+city+" for me? Budget is **1,500 €**, and I like *walking* and food."),
			takes("planner"),
			calls("planner", "call_flights", "search_flights", object{"to": city, "nights": 7, "max_price": 900}),
			calls("planner", "call_weather", "get_weather", object{"city": city, "days": 7}),
			returns("flights", "call_flights", object{"flights": []object{{"carrier": "TAP", "price": fare, "stops": 1}, {"carrier": "LATAM", "price": fare + 120, "stops": 0}}}),
			returns("weather", "call_weather", "A mild week, rain possible in the middle of it."),
			agent("planner", "Here is what I found for **"+city+"**:\n\n| day | high | sky |\n|---|---:|---|\n"+days.String()+
				fmt.Sprintf("\n1. **Flight** with one stop: %d €\n2. **Stay** near the old town, 7 nights\n   - walkable, a market around the corner\n   - breakfast included\n3. **Food**: two markets, one cooking class\n\nShall I hold the flight?", fare)),
			agent("planner", []object{
				{"type": "text", "text": "And the temperatures of the week; the warmest day stands out."},
				{"type": "image", "source": object{"type": "base64", "media_type": "image/png", "data": chart(temps)}},
			}),
			user(who, object{"text": "Yes please! What about the visa?"}),
			calls("planner", "call_hold", "hold_flight", object{"price": fare, "hours": 24}),
			returns("flights", "call_hold", object{"held": true, "reference": fmt.Sprintf("HX%04d", rng.IntN(10000))}),
			changes(hansard.Patch{State: raw(object{"step": "held", "fare": fare}), Labels: map[string]*string{"stage": ptr("booked")}}),
			agent("planner", "It is held for 24 hours. No visa is needed for stays under 90 days; see <https://travel.example/visa> and bring a passport that is valid for *six more months*."),
			summary("planner", 1, 13, who+" wants a week in "+city+" for 1,500 €: the flight is held, no visa needed. Open: the cooking class."),
			releases(),
		},
	}
}

func bug(rng *rand.Rand) story {
	who := pick(rng, "ken", "barbara", "tony")
	n := 100 + rng.IntN(900)
	return story{
		name: "bug", title: fmt.Sprintf("Fix issue %d: the parser drops the last line", n), labels: map[string]string{"team": "tools", "repo": pick(rng, "ledger", "parser", "gateway")},
		beats: []beat{
			says("system", "", object{"role": "system", "content": "You fix bugs. Write a failing test first. Keep changes small."}),
			user(who, fmt.Sprintf("Issue %d: `Parse` loses the last line when the file does not end with a newline.", n)),
			takes("coder"),
			agent("coder", object{"role": "assistant", "content": []object{
				{"type": "thinking", "thinking": "The reader probably splits at newlines and drops the remainder. Look at the loop, then write the test."},
				{"type": "text", "text": "I'll look at the loop first."},
				{"type": "tool_use", "id": "toolu_read", "name": "read_file", "input": object{"path": "parse.go", "lines": "20-60"}},
			}}),
			returns("shell", "toolu_read", "func Parse(r io.Reader) ([]Line, error) {\n\tvar lines []Line\n\tb := bufio.NewReader(r)\n\tfor {\n\t\ttext, err := b.ReadString('\\n')\n\t\tif err == io.EOF {\n\t\t\treturn lines, nil\n\t\t}\n\t\tlines = append(lines, Line(text))\n\t}\n}"),
			calls("coder", "call_test", "run_tests", object{"run": "TestParseLastLine"}),
			fails("shell", "call_test", "--- FAIL: TestParseLastLine (0.00s)\n    parse_test.go:31: got 2 lines, want 3\nFAIL\nexit status 1"),
			agent("coder", "Red, as it should be: at the end of the file `ReadString` gives **both** the rest and `io.EOF`, and the rest is thrown away.\n\n```go\ntext, err := b.ReadString('\\n')\nif text != \"\" {\n\tlines = append(lines, Line(strings.TrimSuffix(text, \"\\n\")))\n}\nif err == io.EOF {\n\treturn lines, nil\n}\n```\n\n- [x] failing test\n- [ ] fix\n- [ ] review"),
			calls("coder", "call_patch", "apply_patch", object{"file": "parse.go", "added": 4, "removed": 3}),
			returns("shell", "call_patch", object{"applied": true}),
			calls("coder", "call_again", "run_tests", object{"run": "./..."}),
			returns("shell", "call_again", fmt.Sprintf("ok  \tparse\t0.0%ds\nok  \tparse/cmd\t0.1%ds", 1+rng.IntN(9), 1+rng.IntN(9))),
			releases(),
			takes("reviewer"),
			agent("reviewer", "> text, err := b.ReadString('\\n')\n\nAn error other than `io.EOF` still loops for ever. Return it:\n\n```go\nif err != nil {\n\treturn lines, err\n}\n```\n\nOtherwise fine."),
			releases(),
			takes("coder"),
			agent("coder", "Right, done. All tests pass."),
			changes(hansard.Patch{Labels: map[string]*string{"state": ptr("merged")}}),
			releases(),
			user(who, "Lovely, thank you both. 🎉"),
		},
	}
}

func incident(rng *rand.Rand) story {
	service := pick(rng, "checkout", "search", "login")
	p99 := 2000 + rng.IntN(4000)
	return story{
		name: "incident", title: fmt.Sprintf("%s answers in %.1f s", service, float64(p99)/1000), labels: map[string]string{"team": "sre", "severity": pick(rng, "1", "2"), "service": service},
		beats: []beat{
			says("system", "pager", object{"type": "alert", "service": service, "p99_ms": p99, "since_minutes": 4, "regions": []string{"eu-1", "eu-2"}, "runbook": "slow answers", "dashboards": []string{"latency", "saturation", "errors"}}),
			takesAlone("sre-bot"),
			agent("sre-bot", "I have the session to myself until this is over; write to the inbox if you know something."),
			calls("sre-bot", "call_top", "query_metrics", object{"query": "topk(5, rate(http_requests_total[5m])) by (client)", "service": service}),
			inbox("dana", "We deployed the new price cache ten minutes ago. Could be that."),
			returns("metrics", "call_top", []object{{"client": "mobile", "rps": 812}, {"client": "web", "rps": 377}, {"client": "partner-7", "rps": 4210}}),
			inbox("partner desk", "partner-7 says they retry without a pause."),
			agent("sre-bot", "Two leads from the inbox: the **price cache** and **partner-7**, which sends ten times its usual load.\n\nI limit the partner first; it is the one that can be undone in a second."),
			calls("sre-bot", "call_limit", "set_rate_limit", object{"client": "partner-7", "rps": 400}),
			returns("gateway", "call_limit", object{"ok": true}),
			steals("dana", "the bot limited the wrong partner, I do the rest by hand"),
			says("user", "dana", "I took over: it was partner-**17**."),
			calls("dana", "call_undo", "set_rate_limit", object{"client": "partner-17", "rps": 400}),
			returns("gateway", "call_undo", object{"ok": true}),
			says("user", "dana", fmt.Sprintf("p99 is back at %d ms.", 90+rng.IntN(60))),
			changes(hansard.Patch{Title: ptr(service + " was slow: a partner without a pause"), Labels: map[string]*string{"state": ptr("resolved"), "severity": nil}}),
			releases(),
		},
	}
}

func sales(rng *rand.Rand) story {
	weeks := make([]float64, 12)
	for i := range weeks {
		weeks[i] = float64(20 + rng.IntN(70) + 3*i)
	}
	region := pick(rng, "the north", "the south", "the islands")
	return story{
		name: "sales", title: "What happened to sales in " + region + "?", labels: map[string]string{"team": "data"},
		beats: []beat{
			user("frances", object{"role": "user", "content": []object{{"type": "input_text", "text": "How did " + region + " sell over the last twelve weeks? A chart, please."}}}),
			takes("analyst"),
			agent("analyst", object{"role": "assistant", "content": nil, "tool_calls": []object{{"id": "call_sql", "type": "function",
				"function": object{"name": "run_sql", "arguments": `{"sql":"select week, sum(amount) from sales where region = $1 group by week order by week","args":["` + region + `"]}`}}}}),
			returns("warehouse", "call_sql", object{"columns": []string{"week", "sum"}, "rows": rows(weeks)}),
			calls("analyst", "call_chart", "draw_chart", object{"kind": "bars", "values": weeks}),
			returns("plotter", "call_chart", []object{{"type": "input_image", "image_url": "data:image/png;base64," + chart(weeks)}}),
			agent("analyst", fmt.Sprintf("### Twelve weeks in %s\n\n- best week: **%.0f k€**\n- last week: **%.0f k€**, %s\n\nThe query, for the record:\n\n```sql\nselect week, sum(amount)\n  from sales\n where region = '%s'\n group by week\n order by week;\n```", region, largest(weeks), weeks[11], pick(rng, "above the trend", "below the trend"), region)),
			user("frances", "Why the spike?"),
			agent("analyst", object{"type": "message", "role": "assistant", "content": []object{{"type": "output_text", "annotations": []string{}, "text": "A single order of a hotel chain. Without it the week is ordinary."}}}),
			summary("analyst", 1, 9, "Sales in "+region+" grow slowly; the spike is one order of a hotel chain."),
			releases(),
		},
	}
}

func rows(values []float64) [][]float64 {
	out := make([][]float64, len(values))
	for i, v := range values {
		out[i] = []float64{float64(i + 1), v}
	}
	return out
}

func largest(values []float64) float64 {
	most := values[0]
	for _, v := range values {
		most = max(most, v)
	}
	return most
}

func letters(rng *rand.Rand) story {
	return story{
		name: "letters", title: "A greeting in many languages", labels: map[string]string{"team": "words", "tone": pick(rng, "warm", "formal")},
		beats: []beat{
			user("yuki", "Please translate “Good morning, and welcome aboard” into Arabic, Greek, Hindi, Japanese and Ukrainian."),
			takes("translator"),
			agent("translator", "| language | greeting |\n|---|---|\n| Arabic | صباح الخير، وأهلًا بكم على متن السفينة |\n| Greek | Καλημέρα και καλώς ήρθατε |\n| Hindi | सुप्रभात, आपका स्वागत है |\n| Japanese | おはようございます、ようこそ |\n| Ukrainian | Доброго ранку й ласкаво просимо |"),
			releases(),
			user("omar", "شكرًا! Could the Arabic be *less* about ships?"),
			takes("translator"),
			agent("translator", "Of course: **صباح الخير، ومرحبًا بانضمامكم إلينا**"),
			releases(),
		},
	}
}
