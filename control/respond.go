package control

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"time"

	"github.com/epair-net/epair/epair"
)

// lateWriter sets the deadline of the connection when the answer begins.
type lateWriter struct {
	http.ResponseWriter
	begun bool
}

func (w *lateWriter) WriteHeader(status int) {
	w.begin()
	w.ResponseWriter.WriteHeader(status)
}

func (w *lateWriter) Write(p []byte) (int, error) {
	w.begin()
	return w.ResponseWriter.Write(p)
}

func (w *lateWriter) begin() {
	if !w.begun {
		w.begun = true
		// A connection without deadlines is one of a test's.
		_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Now().Add(writeTime))
	}
}

// refuseRoute answers a path or method that there isn't, with the status and headers of the mux.
func refuseRoute(w http.ResponseWriter, req *http.Request, h http.Handler) {
	var verdict verdictWriter
	h.ServeHTTP(&verdict, req)
	if allow := verdict.Header().Get("Allow"); allow != "" {
		w.Header().Set("Allow", allow)
	}
	status := verdict.status
	if status < 400 {
		status = http.StatusNotFound // a redirect to the path as it should be written
	}
	answer(w, status, Failure{fmt.Sprintf("%s %.80q: %s (see docs/api.md)", req.Method, req.URL.Path, http.StatusText(status))})
}

// verdictWriter keeps the status and the headers only.
type verdictWriter struct {
	header http.Header
	status int
}

func (v *verdictWriter) Header() http.Header {
	if v.header == nil {
		v.header = http.Header{}
	}
	return v.header
}

func (v *verdictWriter) WriteHeader(status int) { v.status = status }

func (v *verdictWriter) Write(p []byte) (int, error) { return len(p), nil }

// errTooLong says that a request's body is longer than maxBody.
var errTooLong = errors.New("the body is too long")

// statusOf returns the status of an error.
func statusOf(err error) int {
	switch {
	case errors.Is(err, errTooLong):
		return http.StatusRequestEntityTooLarge
	case errors.Is(err, ErrRequest), errors.Is(err, epair.ErrConfig):
		return http.StatusBadRequest
	case errors.Is(err, ErrNoPair):
		return http.StatusNotFound
	case errors.Is(err, ErrConflict), errors.Is(err, fs.ErrExist), errors.Is(err, epair.ErrTaken), errors.Is(err, errors.ErrUnsupported):
		return http.StatusConflict
	case errors.Is(err, ErrStopping), errors.Is(err, net.ErrClosed):
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	// The client may have gone: then nobody is left to tell.
	_ = enc.Encode(v)
}
