package demo

import (
	"bytes"
	"encoding/base64"
	"image"
	"image/color"
	"image/draw"
	"image/png"
)

// chart draws bars, and is the PNG in base64.
func chart(values []float64) string {
	const width, height, gap = 520, 220, 10
	img := image.NewPaletted(image.Rect(0, 0, width, height), color.Palette{
		color.RGBA{0xfb, 0xfa, 0xf7, 0xff}, color.RGBA{0x0b, 0x6b, 0x4f, 0xff}, color.RGBA{0xe2, 0xdf, 0xd6, 0xff}, color.RGBA{0xd0, 0x8a, 0x2c, 0xff},
	})
	for y := 20; y < height; y += 50 {
		draw.Draw(img, image.Rect(0, y, width, y+1), image.NewUniform(img.Palette[2]), image.Point{}, draw.Src)
	}
	largest := 1.0
	for _, v := range values {
		largest = max(largest, v)
	}
	step := (width - gap) / len(values)
	for i, v := range values {
		ink := img.Palette[1]
		if v == largest {
			ink = img.Palette[3]
		}
		top := height - int(v/largest*(height-24))
		draw.Draw(img, image.Rect(gap+i*step, top, gap+(i+1)*step-gap, height), image.NewUniform(ink), image.Point{}, draw.Src)
	}
	var out bytes.Buffer
	if err := png.Encode(&out, img); err != nil {
		panic(err) // into memory
	}
	return base64.StdEncoding.EncodeToString(out.Bytes())
}
