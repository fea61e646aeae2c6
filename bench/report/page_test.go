package report

import (
	"bytes"
	"context"
	"encoding/xml"
	"image"
	"image/png"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

func pageOf(t *testing.T, f *File) string {
	t.Helper()
	var b bytes.Buffer
	if err := f.HTML(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestPage(t *testing.T) {
	p := pageOf(t, sample())
	pics := regexp.MustCompile(`(?s)<svg.*?</svg>`).FindAllString(p, -1)
	if len(pics) != 4 { // throughput, latency, timeline, price
		t.Errorf("%d plots", len(pics))
	}
	for _, s := range pics {
		d := xml.NewDecoder(strings.NewReader(s))
		for {
			if _, err := d.Token(); err == io.EOF {
				break
			} else if err != nil {
				t.Fatalf("plot isn't xml: %v", err)
			}
		}
		if !strings.Contains(s, `role="img"`) || !strings.Contains(s, "<title>") || !strings.Contains(s, "<desc>") || strings.Contains(s, "#000000") {
			t.Errorf("plot can't be read by all: %.300s", s)
		}
	}
	for _, ext := range []string{"http://", "https://", "src=", "@import", "url("} {
		if i := strings.Index(strings.ReplaceAll(strings.ReplaceAll(p, "http://www.w3.org", ""), "https://www.w3.org", ""), ext); i >= 0 {
			t.Errorf("the page needs something else: %s", ext)
		}
	}
	for _, want := range []string{"&lt;x&gt;", "prefers-color-scheme: dark", "not installed", "Some CPU", "epair bench compare"} {
		if !strings.Contains(p, want) {
			t.Errorf("no %q in the page", want)
		}
	}
}

func TestPageOfNothing(t *testing.T) {
	f := &File{Schema: Schema, Partial: true}
	f.Finish()
	if p := pageOf(t, f); !strings.Contains(p, "Interrupted") {
		t.Error("doesn't say that it was interrupted")
	}
}

// A real browser shows the page, in light and in dark.
func TestPageInBrowser(t *testing.T) {
	browser, err := exec.LookPath("chromium")
	if err != nil {
		if os.Getenv("EPAIR_REQUIRE") == "1" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "report.html")
	if err := os.WriteFile(path, []byte(pageOf(t, sample())), 0o644); err != nil {
		t.Fatal(err)
	}
	dom := chromium(t, browser, dir, "--dump-dom", "file://"+path)
	for _, want := range []string{"<svg", "xdp/inline", "not installed</p>"} {
		if !strings.Contains(dom, want) {
			t.Errorf("no %q in what the browser made of the page", want)
		}
	}
	for _, c := range []struct {
		name string
		dark bool
		args []string
	}{
		{"light", false, []string{"--blink-settings=preferredColorScheme=1"}},
		{"dark", true, []string{"--blink-settings=preferredColorScheme=0"}},
	} {
		shot := filepath.Join(dir, c.name+".png")
		chromium(t, browser, dir, append(c.args, "--screenshot="+shot, "--window-size=1100,2600", "file://"+path)...)
		checkShot(t, shot, c.dark)
	}
}

func chromium(t *testing.T, browser, dir string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	all := append([]string{"--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--user-data-dir=" + filepath.Join(dir, "profile")}, args...)
	cmd := exec.CommandContext(ctx, browser, all...)
	var out, errw bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errw
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s", err, errw.String())
	}
	return out.String()
}

// checkShot looks at the share of light pixels and of the colors of bars.
func checkShot(t *testing.T, path string, dark bool) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	img, err := png.Decode(f)
	if err != nil {
		t.Fatal(err)
	}
	light, text, blue, total := shares(img)
	if dark {
		light, text = text, light
	}
	// The ground fills most, the ink some, the bars a little.
	if light < 0.7*total || text < 0.005*total || blue < 0.001*total {
		t.Errorf("%s: of %.0f pixels ground %.0f, ink %.0f, bars %.0f", path, total, light, text, blue)
	}
}

func shares(img image.Image) (light, dark, blue, total float64) {
	for y := img.Bounds().Min.Y; y < img.Bounds().Max.Y; y++ {
		for x := img.Bounds().Min.X; x < img.Bounds().Max.X; x++ {
			r, g, b, _ := img.At(x, y).RGBA()
			r, g, b = r>>8, g>>8, b>>8
			total++
			switch {
			case r > 180 && g > 180 && b > 180:
				light++
			case r < 80 && g < 80 && b < 80:
				dark++
			case b > r+80 && b > g+40:
				blue++
			}
		}
	}
	return light, dark, blue, total
}
