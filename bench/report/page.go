package report

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"strings"
)

//go:embed page.html.tmpl
var pageText string

// page is what the template sees.
type page struct {
	*File
	Sections []section
	Price    *Plot
	Facts    []fact
	Details  []*Row
}

type section struct {
	Title string
	Plots []*Plot
	Head  []string
	Lines [][]string
}

type fact struct{ Name, Value string }

// HTML writes f as one page that needs nothing else: tables, plots, and all facts.
func (f *File) HTML(w io.Writer) error {
	t, err := template.New("page").Funcs(template.FuncMap{
		"join": func(s []string) string { return strings.Join(s, " ") }, "class": cellClass,
	}).Parse(pageText)
	if err != nil {
		return fmt.Errorf("write page: %w", err)
	}
	p := page{File: f}
	for _, g := range f.Groups() {
		s, err := g.section()
		if err != nil {
			return fmt.Errorf("write page: %w", err)
		}
		p.Sections = append(p.Sections, s)
	}
	if p.Price, err = f.price(); err != nil {
		return fmt.Errorf("write page: %w", err)
	}
	if p.Facts, err = facts(f.Machine); err != nil {
		return fmt.Errorf("write page: %w", err)
	}
	for i := range f.Rows {
		p.Details = append(p.Details, &f.Rows[i])
	}
	return t.Execute(w, p)
}

// cellClass is how a cell of a table is set: the longer ones as text, in several lines.
func cellClass(head []string, column int, text string) string {
	var class []string
	if len(text) > 20 {
		class = append(class, "text")
	}
	if head[column] == "NOISE" {
		class = append(class, "last")
	}
	return strings.Join(class, " ")
}

func (g Group) section() (s section, err error) {
	table := g.Table()
	s = section{Title: g.Title, Head: table[0], Lines: table[1:]}
	draw := []func() (*Plot, error){g.latencies}
	if g.Rows[0].Rate == 0 && g.Rows[0].Switch == nil { // paced rows all deliver what they are offered
		draw = append(draw, g.bars)
	}
	for _, r := range g.Rows {
		draw = append(draw, r.timeline)
	}
	for _, d := range draw {
		p, err := d()
		if err != nil {
			return s, err
		}
		if p != nil {
			s.Plots = append(s.Plots, p)
		}
	}
	return s, nil
}

// facts flattens what is known of the machine, by the names of the file format.
func facts(machine any) (list []fact, err error) {
	text, err := json.Marshal(machine)
	if err != nil {
		return nil, err
	}
	dec := json.NewDecoder(strings.NewReader(string(text)))
	var path []string
	depth := 0
	key := true // the next text is a key
	for {
		t, err := dec.Token()
		if err == io.EOF {
			return list, nil
		}
		if err != nil {
			return nil, err
		}
		switch d, delim := t.(json.Delim); {
		case delim && d == '{':
			depth++
			key = true
		case delim:
			depth--
			if depth > 0 {
				path = path[:depth-1]
			}
			key = true
		case key:
			path = append(path[:depth-1], fmt.Sprint(t))
			key = false
		default:
			list = append(list, fact{strings.Join(path, " "), fmt.Sprint(t)})
			key = true
		}
	}
}
