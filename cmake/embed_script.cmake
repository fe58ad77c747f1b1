# Run by weft_embed at build time.
string(REPLACE "," ";" FILES "${FILES}")
set(rows "")
foreach(file ${FILES})
  file(READ ${file} text)
  get_filename_component(base ${file} NAME_WE)
  string(APPEND rows "  if (file == \"${base}\") return R\"WGSL(${text})WGSL\";\n")
endforeach()
file(WRITE ${OUT} "#include <string_view>

#include \"base/error.h\"

namespace weft::embedded {
std::string_view ${NAME}(std::string_view file);
std::string_view ${NAME}(std::string_view file) {
${rows}  fail(ErrorKind::invalid, \"[embed] no file '{}' in ${NAME}\", file);
}
}  // namespace weft::embedded
")
