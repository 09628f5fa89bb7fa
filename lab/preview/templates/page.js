// Draws each figure where its description stands. `data-drawn` tells, once, that all of them are there.
const places = [...document.querySelectorAll(".drawing")];
Promise.all(places.map((place) => {
  const { data, layout, config } = JSON.parse(place.firstElementChild.textContent);
  const canvas = document.createElement("div");
  canvas.className = "canvas";
  place.append(canvas);
  return Plotly.newPlot(canvas, data, layout, config);
})).then(() => { document.body.dataset.drawn = places.length; });
