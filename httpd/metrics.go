package httpd

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"hansard"
)

// metrics counts what happens. No label ever holds an id, a key or a name that
// a client chose.
type metrics struct {
	registry *prometheus.Registry

	requests         *prometheus.CounterVec
	seconds          *prometheus.HistogramVec
	problems         *prometheus.CounterVec
	appends          *prometheus.CounterVec
	events, bytes    prometheus.Counter
	imports          *prometheus.CounterVec
	importedEvents   prometheus.Counter
	importedBytes    prometheus.Counter
	turns            *prometheus.CounterVec
	turnWait         prometheus.Histogram
	followers        prometheus.Gauge
	sockets          prometheus.Gauge
	droppedFollowers prometheus.Counter
}

func newMetrics(store hansard.Store) *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	vector := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	m := &metrics{
		registry: prometheus.NewRegistry(),
		requests: vector("hansard_http_requests_total", "Requests answered.", "route", "method", "status"),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "hansard_http_request_seconds",
			Help: "How long requests took; streams as long as they lasted.", Buckets: prometheus.ExponentialBuckets(0.0005, 4, 9)}, []string{"route", "method"}),
		problems: vector("hansard_problems_total", "Errors answered, by their type.", "type"),
		appends:  vector("hansard_appends_total", "Appends, by what became of them.", "outcome"),
		events:   counter("hansard_appended_events_total", "Events stored."),
		bytes:    counter("hansard_appended_bytes_total", "Bytes of data stored."),
		imports:  vector("hansard_imports_total", "Parts of other stores' sessions, by what became of them.", "outcome"),

		importedEvents: counter("hansard_imported_events_total", "Events imported."),
		importedBytes:  counter("hansard_imported_bytes_total", "Bytes of data imported."),

		turns: vector("hansard_turns_total", "Turns asked for, renewed and released, by what became of it.", "outcome"),
		turnWait: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "hansard_turn_wait_seconds",
			Help: "How long it took to get a turn.", Buckets: prometheus.ExponentialBuckets(0.001, 4, 10)}),
		followers:        gauge("hansard_followers", "Followers and waiters of all sessions."),
		sockets:          gauge("hansard_websockets", "Open WebSockets."),
		droppedFollowers: counter("hansard_followers_dropped_total", "Followers dropped because they took nothing."),
	}
	m.registry.MustRegister(m.requests, m.seconds, m.problems, m.appends, m.events, m.bytes,
		m.imports, m.importedEvents, m.importedBytes, m.turns, m.turnWait,
		m.followers, m.sockets, m.droppedFollowers, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if c, ok := store.(measured); ok {
		m.registry.MustRegister(storeMeasures{c})
	}
	return m
}

// measured is a store that counts its work: syncs, waits for locks, recoveries.
type measured interface {
	Measures() map[string]float64
}

// storeMeasures passes them to Prometheus.
type storeMeasures struct{ store measured }

func (storeMeasures) Describe(chan<- *prometheus.Desc) {} // whatever the engine has

func (c storeMeasures) Collect(to chan<- prometheus.Metric) {
	for name, value := range c.store.Measures() {
		desc := prometheus.NewDesc("hansard_store_"+name, "Of the store's engine, since this server opened it.", nil, nil)
		to <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, value)
	}
}

func (s *Server) serveMetrics(w http.ResponseWriter, r *http.Request) error {
	if err := wholeStore(r.Context()); err != nil {
		return err
	}
	promhttp.HandlerFor(s.metrics.registry, promhttp.HandlerOpts{}).ServeHTTP(w, r)
	return nil
}

func (m *metrics) request(route, method string, status int, took time.Duration) {
	method = methodName(method)
	if route == "" {
		route = "none"
	}
	m.requests.WithLabelValues(route, method, strconv.Itoa(status)).Inc()
	m.seconds.WithLabelValues(route, method).Observe(took.Seconds())
}

// methodName maps a method to a known name: clients can invent any number of methods.
func methodName(method string) string {
	switch method {
	case "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE":
		return method
	}
	return "other"
}

func (m *metrics) problem(kind string) {
	m.problems.WithLabelValues(strings.TrimPrefix(kind, "/problems/")).Inc()
}

// outcome is the result of a write, in a word.
func outcome(err error) string {
	if err == nil {
		return "stored"
	}
	switch hansard.Kind(err) {
	case hansard.ErrUnknown:
		return "unknown"
	case hansard.ErrConflict:
		return "conflict"
	case hansard.ErrKeyReused:
		return "key_reused"
	case hansard.ErrIDReused:
		return "id_reused"
	case hansard.ErrFenced:
		return "fenced"
	case hansard.ErrHeld:
		return "held"
	case hansard.ErrInvalid, hansard.ErrTooLarge, hansard.ErrNotFound, hansard.ErrDeleted, hansard.ErrExists:
		return "refused"
	}
	return "failed"
}

func (m *metrics) append(b *hansard.Batch, r hansard.Receipt, err error) {
	if r.Replayed {
		m.appends.WithLabelValues("replayed").Inc()
		return
	}
	m.appends.WithLabelValues(outcome(err)).Inc()
	if err != nil {
		return
	}
	m.events.Add(float64(r.Last - r.First + 1))
	m.bytes.Add(dataBytes(b.Events))
}

func (m *metrics) imported(p *hansard.Part, err error) {
	m.imports.WithLabelValues(outcome(err)).Inc()
	if err == nil {
		m.importedEvents.Add(float64(len(p.Events)))
		m.importedBytes.Add(dataBytes(p.Events))
	}
}

func dataBytes(events []hansard.Event) float64 {
	size := 0
	for i := range events {
		size += len(events[i].Data)
	}
	return float64(size)
}

func (m *metrics) acquire(took time.Duration, err error) {
	if err != nil {
		m.turnError(err)
		return
	}
	m.turns.WithLabelValues("granted").Inc()
	m.turnWait.Observe(took.Seconds())
}

func (m *metrics) turnError(err error) { m.turns.WithLabelValues(outcome(err)).Inc() }
