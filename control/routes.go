package control

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"time"

	"github.com/epair-net/epair/epair"
)

// openAPI describes all routes and types; a test holds it true.
//
//go:embed openapi.yaml
var openAPI []byte

// maxBody bounds a request: 500 pairs take some 150 KiB.
const maxBody = 1 << 20

// Times of a connection. A change may take as long as it takes: only reading and writing is bounded.
const (
	headerTime = 5 * time.Second
	readTime   = 10 * time.Second // for a whole request
	writeTime  = 10 * time.Second // for an answer: who doesn't read it is cut off
	idleTime   = time.Minute
)

// route is one thing that can be asked for.
type route struct {
	method, path string
	handle       func(*http.Request) (answer any, status int, err error)
}

// routes are all that answer JSON. The rest is in handler.
func (d *Daemon) routes() []route {
	return []route{
		{"GET", "/v1/pairs", ask(func() Pairs { return Pairs{d.Pairs()} })},
		{"POST", "/v1/pairs", d.postPairs},
		{"DELETE", "/v1/pairs", d.deletePairs},
		{"GET", "/v1/pairs/{name}", d.getPair},
		{"PATCH", "/v1/pairs/{name}", d.patchPair},
		{"DELETE", "/v1/pairs/{name}", d.deletePair},
		{"GET", "/v1/rss", ask(d.RSS)},
		{"PATCH", "/v1/rss", change(d.SetRSS)},
		{"GET", "/v1/rss/load", d.getLoad},
		{"POST", "/v1/rss/rebalance", change(d.Rebalance)},
		{"GET", "/v1/pool", ask(d.Pool)},
		{"PATCH", "/v1/pool", change(d.SetPool)},
		{"GET", "/v1/stat", ask(d.Stat)},
		{"GET", "/v1/audit", ask(d.Audit)},
		{"GET", "/v1/gc", getGarbage},
		{"POST", "/v1/gc", collectGarbage},
		{"GET", "/v1/version", ask(runningVersion)},
	}
}

// handler answers the API.
func (d *Daemon) handler() http.Handler {
	mux := http.NewServeMux()
	for _, r := range d.routes() {
		mux.HandleFunc(r.method+" "+r.path, func(w http.ResponseWriter, req *http.Request) {
			v, status, err := r.handle(req)
			if err != nil {
				status, v = statusOf(err), Failure{OneLine(err)}
			}
			answer(w, status, v)
		})
	}
	mux.HandleFunc("GET /v1/openapi.yaml", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/yaml")
		_, _ = w.Write(openAPI) // the client may have gone
	})
	mux.Handle("GET /metrics", d.metrics())
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		// A response that nobody reads would keep its goroutine; the time begins when it is written.
		w = &lateWriter{ResponseWriter: w}
		h, pattern := mux.Handler(req)
		if pattern == "" || path.Clean(req.URL.Path) != req.URL.Path { // the mux would redirect the latter, as browsers like it
			refuseRoute(w, req, h)
			return
		}
		mux.ServeHTTP(w, req)
	})
}

// ask makes a handler of a question.
func ask[T any](f func() T) func(*http.Request) (any, int, error) {
	return func(*http.Request) (any, int, error) { return f(), http.StatusOK, nil }
}

// change makes a handler of a change of what there is once.
func change[Want, Is any](f func(Want) (Is, error)) func(*http.Request) (any, int, error) {
	return func(r *http.Request) (any, int, error) {
		var want Want
		if err := read(r, &want); err != nil {
			return nil, 0, err
		}
		is, err := f(want)
		return is, http.StatusOK, err
	}
}

// read fills *into from the request's body.
func read(r *http.Request, into any) error {
	// The answer need not tell the client to go away: MaxBytesReader wants a ResponseWriter only for that.
	data, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, maxBody))
	var long *http.MaxBytesError
	switch {
	case errors.As(err, &long):
		return fmt.Errorf("%w: %d bytes are the most (ask for less at a time)", errTooLong, maxBody)
	case err != nil:
		return fmt.Errorf("%w: read the body: %w", ErrRequest, err)
	}
	return decodeStrict(data, into)
}

func (d *Daemon) postPairs(r *http.Request) (any, int, error) {
	var want Adding
	if err := read(r, &want); err != nil {
		return nil, 0, err
	}
	if len(want.Pairs) == 0 {
		return nil, 0, fmt.Errorf("%w: pairs: name at least one", ErrRequest)
	}
	// Not the request's context: who asked and left finds all of it or nothing, not a matter of luck.
	pairs, err := d.Add(context.WithoutCancel(r.Context()), want.Pairs)
	return Pairs{pairs}, http.StatusCreated, err
}

func (d *Daemon) deletePairs(r *http.Request) (any, int, error) {
	names := r.URL.Query()["name"]
	if len(names) == 0 {
		return nil, 0, fmt.Errorf("%w: delete pairs: none is named (add ?name=NAME, &name=NAME …)", ErrRequest)
	}
	return Removed{names}, http.StatusOK, d.Remove(names)
}

func (d *Daemon) getPair(r *http.Request) (any, int, error) {
	p, ok := d.Pair(r.PathValue("name"))
	if !ok {
		return nil, 0, fmt.Errorf("show %w", noPair(r.PathValue("name")))
	}
	var err error
	p.Elephants, err = d.elephants(p.Name)
	return p, http.StatusOK, err
}

func (d *Daemon) getLoad(*http.Request) (any, int, error) {
	l, err := d.Load()
	return l, http.StatusOK, err
}

func (d *Daemon) patchPair(r *http.Request) (any, int, error) {
	return change(func(want PairChange) (Changed, error) { return d.Set(r.PathValue("name"), want) })(r)
}

func (d *Daemon) deletePair(r *http.Request) (any, int, error) {
	names := []string{r.PathValue("name")}
	return Removed{names}, http.StatusOK, d.Remove(names)
}

// getGarbage lists what a crash left.
func getGarbage(*http.Request) (any, int, error) { return garbage(true) }

// collectGarbage removes it.
func collectGarbage(*http.Request) (any, int, error) {
	g, status, err := garbage(false)
	g.Removed = err == nil
	return g, status, err
}

func garbage(dry bool) (Garbage, int, error) {
	l, err := epair.Sweep("", dry, false)
	return AnswerLitter(l), http.StatusOK, err
}

// AnswerLitter puts what processes have left into words.
func AnswerLitter(l epair.Litter) Garbage {
	return Garbage{Found: append([]string{}, l.Garbage...), Kept: append([]string{}, l.Kept...)}
}

func runningVersion() Version {
	v := ThisVersion()
	v.PID = os.Getpid()
	return v
}
